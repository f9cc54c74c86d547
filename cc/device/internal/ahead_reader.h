// File: cc/device/internal/ahead_reader.h
// What a thread that waits asks for of the bytes that it reads next (ThreadPool::ReadAhead).
// A thread's own.
#ifndef PAGEMILL_CC_DEVICE_INTERNAL_AHEAD_READER_H_
#define PAGEMILL_CC_DEVICE_INTERNAL_AHEAD_READER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "cc/device/cache_sizes.h"

namespace pagemill::device::internal {

// At most so much of its part of what comes next does a thread ask for: half of its share of the
// second-level cache, so that what the current op still needs stays there; within these bounds, the
// lower one where the system does not tell.
inline constexpr size_t kLeastReadAheadBytes = 64 << 10;
inline constexpr size_t kMostReadAheadBytes = 512 << 10;
// Between two looks at whether there is work: some 10 ns.
inline constexpr size_t kReadAheadStep = 512;
inline constexpr size_t kLineBytes = 64;

inline size_t ReadAheadBytes() {
  size_t bytes = kLeastReadAheadBytes;
  for (const CacheSize& cache : DataCaches()) {
    if (cache.level == 2) bytes = static_cast<size_t>(cache.bytes / std::max(cache.cpus, 1) / 2);
  }
  return std::clamp(bytes, kLeastReadAheadBytes, kMostReadAheadBytes);
}

// What a thread still has to ask for of its part of what comes next.
class AheadReader {
 public:
  // Starts anew where `next` is not what it was before.
  void Begin(std::span<const std::byte> next, int64_t thread, int64_t threads, size_t most) {
    if (next.data() == next_.data() && next.size() == next_.size()) return;
    next_ = next;
    const size_t begin = next.size() * static_cast<size_t>(thread) / static_cast<size_t>(threads);
    const size_t end = next.size() * static_cast<size_t>(thread + 1) / static_cast<size_t>(threads);
    rest_ = next.subspan(begin, std::min(end - begin, most));
  }

  // Asks for it until `ready()`; returns for how many bytes.
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
