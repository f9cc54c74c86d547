// File: cc/device/internal/ahead_reader.h
// Prefetches the bytes that a waiting thread reads next (ThreadPool::ReadAhead). Used by one
// thread.
#ifndef PAGEMILL_CC_DEVICE_INTERNAL_AHEAD_READER_H_
#define PAGEMILL_CC_DEVICE_INTERNAL_AHEAD_READER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "cc/device/cache_sizes.h"

namespace pagemill::device::internal {

// Bounds for the bytes that a thread prefetches: half of its share of the second-level cache, so
// that the current op's data stays there, clamped to these bounds; the lower one if the cache size
// is unknown.
inline constexpr size_t kLeastReadAheadBytes = 64 << 10;
inline constexpr size_t kMostReadAheadBytes = 512 << 10;
// Bytes between checks for work: some 10 ns.
inline constexpr size_t kReadAheadStep = 512;
inline constexpr size_t kLineBytes = 64;

inline size_t ReadAheadBytes() {
  size_t bytes = kLeastReadAheadBytes;
  for (const CacheSize& cache : DataCaches()) {
    if (cache.level == 2) bytes = static_cast<size_t>(cache.bytes / std::max(cache.cpus, 1) / 2);
  }
  return std::clamp(bytes, kLeastReadAheadBytes, kMostReadAheadBytes);
}

// The part of the next data that a thread has yet to prefetch.
class AheadReader {
 public:
  // Restarts if `next` has changed.
  void Begin(std::span<const std::byte> next, int64_t thread, int64_t threads, size_t most) {
    if (next.data() == next_.data() && next.size() == next_.size()) return;
    next_ = next;
    const size_t begin = next.size() * static_cast<size_t>(thread) / static_cast<size_t>(threads);
    const size_t end = next.size() * static_cast<size_t>(thread + 1) / static_cast<size_t>(threads);
    rest_ = next.subspan(begin, std::min(end - begin, most));
  }

  // Prefetches until `ready()` is true; returns the number of bytes prefetched.
  template <typename Ready>
  size_t Run(const Ready& ready) {
    const size_t before = rest_.size();
    while (!rest_.empty() && !ready()) {
      const size_t step = std::min(rest_.size(), kReadAheadStep);
      for (size_t i = 0; i < step; i += kLineBytes) __builtin_prefetch(rest_.data() + i, 0, 2);
      rest_ = rest_.subspan(step);
    }
    return before - rest_.size();
  }

 private:
  std::span<const std::byte> next_;
  std::span<const std::byte> rest_;
};

}  // namespace pagemill::device::internal

#endif  // PAGEMILL_CC_DEVICE_INTERNAL_AHEAD_READER_H_
