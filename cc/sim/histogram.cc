#include "cc/sim/histogram.h"

#include <algorithm>
#include <bit>

#include "cc/sim/fixed_point.h"

namespace pagemill::sim {
namespace {

constexpr int kBits = 6;                 // 64 buckets for each power of two
constexpr int64_t kLinear = 1 << kBits;  // below this a bucket is one value
constexpr size_t kNumBuckets = (63 - kBits + 1) * kLinear;

}  // namespace

Histogram::Histogram() : counts_(kNumBuckets, 0) {}

size_t Histogram::BucketOf(int64_t value) {
  if (value < kLinear) return static_cast<size_t>(value);
  const int shift = std::bit_width(static_cast<uint64_t>(value)) - 1 - kBits;
  return static_cast<size_t>(shift * kLinear + (value >> shift));
}

int64_t Histogram::LowOf(size_t bucket) {
  const auto index = static_cast<int64_t>(bucket);
  if (index < 2 * kLinear) return index;
  const int64_t shift = index / kLinear - 1;
  if (shift > 63 - kBits - 1) return INT64_MAX;
  return (kLinear + index % kLinear) << shift;
}

void Histogram::Add(int64_t value, uint64_t count) {
  counts_[BucketOf(value)] += count;
  count_ += count;
  const Uint128 sum = ((static_cast<Uint128>(sum_high_) << 64) | sum_low_) +
                      static_cast<Uint128>(static_cast<uint64_t>(value)) * count;
  sum_low_ = static_cast<uint64_t>(sum);
  sum_high_ = static_cast<uint64_t>(sum >> 64);
  min_ = std::min(min_, value);
  max_ = std::max(max_, value);
}

int64_t Histogram::mean() const {
  if (count_ == 0) return 0;
  return static_cast<int64_t>(((static_cast<Uint128>(sum_high_) << 64) | sum_low_) / count_);
}

int64_t Histogram::Quantile(int permille) const {
  if (count_ == 0) return 0;
  const auto rank = static_cast<uint64_t>(
      std::max<Uint128>(1, (static_cast<Uint128>(count_) * permille + 999) / 1000));
  uint64_t seen = 0;
  size_t bucket = 0;
  while (seen + counts_[bucket] < rank) seen += counts_[bucket++];
  const int64_t low = LowOf(bucket);
  return std::clamp(low + (LowOf(bucket + 1) - low) / 2, min_, max_);
}

std::vector<Histogram::Bucket> Histogram::NonEmpty() const {
  std::vector<Bucket> found;
  for (size_t i = 0; i < counts_.size(); ++i) {
    if (counts_[i] > 0) found.push_back({LowOf(i), LowOf(i + 1), counts_[i]});
  }
  return found;
}

}  // namespace pagemill::sim
