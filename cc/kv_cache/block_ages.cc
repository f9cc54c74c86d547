#include "cc/kv_cache/block_ages.h"

#include <limits>
#include <utility>

#include "cc/base/status.h"

namespace pagemill::kv_cache {
namespace {

// Hashes are uniform: this share of them is not above the result.
uint64_t LastWord(double sample) {
  PAGEMILL_CHECK(sample > 0 && sample <= 1);
  if (sample == 1) return std::numeric_limits<uint64_t>::max();
  return static_cast<uint64_t>(sample * 0x1p64);
}

}  // namespace

BlockAges::BlockAges(double sample) : last_word_(LastWord(sample)) {
  stats_.kv_block_lifetime.Clear();
  stats_.kv_block_idle_before_evict.Clear();
  stats_.kv_block_reuse_gap.Clear();
}

void BlockAges::Stored(BlockId page) {
  blocks_.insert_or_assign(page, Times{now_ns_, now_ns_, now_ns_});
}

void BlockAges::Reused(BlockId page) {
  Times& times = blocks_.at(page);
  stats_.kv_block_reuse_gap.Add(SecondsSince(times.used));
  times.used = now_ns_;
}

void BlockAges::Released(BlockId page) { blocks_.at(page).released = now_ns_; }

void BlockAges::Moved(BlockId from, BlockId to) {
  auto entry = blocks_.extract(from);
  PAGEMILL_CHECK(!entry.empty());
  entry.key() = to;
  blocks_.insert(std::move(entry));
}

void BlockAges::Evicted(BlockId page) {
  const Times& times = blocks_.at(page);
  stats_.kv_block_lifetime.Add(SecondsSince(times.stored));
  stats_.kv_block_idle_before_evict.Add(SecondsSince(times.released));
}

}  // namespace pagemill::kv_cache
