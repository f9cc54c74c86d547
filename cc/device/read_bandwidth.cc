#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>

#include "cc/device/large_buffer.h"
#include "cc/device/machine_limits.h"

namespace pagemill::device {
namespace {

using Clock = std::chrono::steady_clock;
using Words2 = uint64_t __attribute__((vector_size(16)));
using Words4 = uint64_t __attribute__((vector_size(32)));
using Words8 = uint64_t __attribute__((vector_size(64)));

// Up to this size each thread reads its own part, which may be in its own cache.
constexpr int64_t kPartitionedBytes = 4 << 20;
// A pass reads at least this much: it lasts a few hundred microseconds at L2 speed.
constexpr int64_t kPassBytes = 64 << 20;
constexpr int64_t kMinimumBytes = 64;

double Seconds(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Sums the buffer one register at a time.
template <typename V>
[[gnu::always_inline]] inline uint64_t ReadAll(const uint8_t* from, int64_t bytes) {
  constexpr int kSums = 8;
  constexpr int64_t kStep = kSums * sizeof(V);
  V sums[kSums] = {};
  for (int64_t i = 0; i + kStep <= bytes; i += kStep) {
#pragma GCC unroll 8
    for (int c = 0; c < kSums; ++c) {
      V words;
      std::memcpy(&words, from + i + c * sizeof(V), sizeof(V));
      sums[c] += words;
    }
  }
  uint64_t sum = 0;
  for (int c = 0; c < kSums; ++c) sum += sums[c][0] + sums[c][1];
  return sum;
}

uint64_t ReadAllPortable(const uint8_t* from, int64_t bytes) {
  return ReadAll<Words2>(from, bytes);
}
#if defined(__x86_64__)
[[gnu::target("avx2")]] uint64_t ReadAllAvx2(const uint8_t* from, int64_t bytes) {
  return ReadAll<Words4>(from, bytes);
}
[[gnu::target("avx512f")]] uint64_t ReadAllAvx512(const uint8_t* from, int64_t bytes) {
  return ReadAll<Words8>(from, bytes);
}
#endif

using ReadFunction = uint64_t (*)(const uint8_t* from, int64_t bytes);

ReadFunction WidestRead(const Capabilities& caps) {
#if defined(__x86_64__)
  if (caps.cpu.avx512) return ReadAllAvx512;
  if (caps.cpu.avx2) return ReadAllAvx2;
#endif
  (void)caps;
  return ReadAllPortable;
}

}  // namespace

double MeasureReadBandwidth(const Capabilities& caps, std::span<const uint8_t> buffer,
                            ThreadPool& pool, double seconds) {
  const ReadFunction read = WidestRead(caps);
  const int64_t bytes = static_cast<int64_t>(buffer.size());
  const bool partitioned = bytes <= kPartitionedBytes;
  const int64_t parts = pool.num_threads() * (partitioned ? 1 : 64);
  const int64_t repeats =
      partitioned ? std::max<int64_t>(1, kPassBytes / std::max<int64_t>(bytes, 1)) : 1;
  double best = 0;
  const Clock::time_point begin = Clock::now();
  do {
    const Clock::time_point start = Clock::now();
    pool.ParallelFor(parts, 1, [&](int64_t first, int64_t last, int) {
      const int64_t from = first * bytes / parts;
      for (int64_t r = 0; r < repeats; ++r) {
        uint64_t sum = read(buffer.data() + from, last * bytes / parts - from);
        asm volatile("" : "+r"(sum));
      }
    });
    best = std::max(best, static_cast<double>(bytes * repeats) / Seconds(start));
  } while (Seconds(begin) < seconds);
  return best;
}

StatusOr<double> MeasureReadBandwidth(const Capabilities& caps, const ReadOptions& options,
                                      ThreadPool& pool) {
  if (options.bytes < kMinimumBytes) {
    return InvalidArgument("a buffer of " + std::to_string(options.bytes) +
                           " bytes is too small to time the reading of: at least 64");
  }
  const std::optional<LargeBuffer> buffer = LargeBuffer::Make(options.bytes);
  if (!buffer) {
    return Status(StatusCode::kResourceExhausted,
                  "no memory for a buffer of " + std::to_string(options.bytes) + " bytes");
  }
  const std::span<std::byte> bytes = buffer->bytes();
  // All threads write it first: unwritten pages all map to one zero page.
  constexpr int64_t kPieceBytes = 1 << 20;
  const int64_t pieces = (options.bytes + kPieceBytes - 1) / kPieceBytes;
  pool.ParallelFor(pieces, 1, [&](int64_t first, int64_t last, int) {
    const int64_t end = std::min(last * kPieceBytes, options.bytes);
    std::memset(bytes.data() + first * kPieceBytes, 1, end - first * kPieceBytes);
  });
  return MeasureReadBandwidth(caps, {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()},
                              pool, options.seconds);
}

}  // namespace pagemill::device
