#include "cc/router/prefix_index.h"

#include <algorithm>
#include <bit>

namespace pagemill::router {

PrefixIndex::PrefixIndex(int64_t capacity)
    : buckets_(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(capacity, kWays)) / kWays)) {}

void PrefixIndex::Add(const kv_cache::BlockHash& hash, int32_t engine) {
  Bucket& bucket = buckets_[IndexOf(hash)];
  const Entry entry{TagOf(hash), engine};
  auto place = std::find(bucket.begin(), bucket.end(), entry);
  if (place == bucket.end()) --place;  // the oldest makes room
  std::move_backward(bucket.begin(), place, place + 1);
  bucket.front() = entry;
}

void PrefixIndex::Remove(const kv_cache::BlockHash& hash, int32_t engine) {
  Bucket& bucket = buckets_[IndexOf(hash)];
  const auto rest = std::remove(bucket.begin(), bucket.end(), Entry{TagOf(hash), engine});
  std::fill(rest, bucket.end(), Entry{});
}

void PrefixIndex::RemoveAll(int32_t engine) {
  for (Bucket& bucket : buckets_) {
    const auto rest = std::remove_if(bucket.begin(), bucket.end(), [engine](const Entry& entry) {
      return entry.engine == engine;
    });
    std::fill(rest, bucket.end(), Entry{});
  }
}

void PrefixIndex::Find(const kv_cache::BlockHash& hash, std::vector<int32_t>* engines) const {
  engines->clear();
  const uint32_t tag = TagOf(hash);
  for (const Entry& entry : buckets_[IndexOf(hash)]) {
    if (entry.engine >= 0 && entry.tag == tag) engines->push_back(entry.engine);
  }
}

}  // namespace pagemill::router
