#include "cc/ops/linear/machine_limits.h"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace pagemill::ops::linear {
namespace {

using Clock = std::chrono::steady_clock;
using Lanes4 = float __attribute__((vector_size(16)));
using Lanes8 = float __attribute__((vector_size(32)));
using Lanes16 = float __attribute__((vector_size(64)));
using Words2 = uint64_t __attribute__((vector_size(16)));
using Words4 = uint64_t __attribute__((vector_size(32)));
using Words8 = uint64_t __attribute__((vector_size(64)));

// Enough independent chains for two units of latency 5; fits 16 registers.
constexpr int kChains = 12;
constexpr int64_t kSteps = 200000;
constexpr int kPasses = 5;

double Seconds(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// kSteps multiply-adds in each chain. Returns floating point operations done.
template <typename V>
[[gnu::always_inline]] inline double MultiplyAdd(float* sink) {
  V sums[kChains];
  for (int c = 0; c < kChains; ++c) sums[c] = V{} + static_cast<float>(c);
  V factor = V{} + *sink;
  asm volatile("" : "+m"(factor));  // unknown to the compiler
  for (int64_t step = 0; step < kSteps; ++step) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) sums[c] = sums[c] * factor + factor;
  }
  for (int c = 1; c < kChains; ++c) sums[0] += sums[c];
  asm volatile("" : : "m"(sums[0]));
  return 2.0 * kChains * kSteps * (sizeof(V) / sizeof(float));
}

double MultiplyAddPortable(float* sink) { return MultiplyAdd<Lanes4>(sink); }
#if defined(__x86_64__)
[[gnu::target("avx2,fma")]] double MultiplyAddAvx2(float* sink) {
  return MultiplyAdd<Lanes8>(sink);
}
[[gnu::target("avx512f,fma")]] double MultiplyAddAvx512(float* sink) {
  return MultiplyAdd<Lanes16>(sink);
}
#endif

// Sums the buffer a register at a time.
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

}  // namespace

double MeasureFlops(const device::Capabilities& caps, device::ThreadPool& pool) {
  double (*run)(float*) = MultiplyAddPortable;
#if defined(__x86_64__)
  if (caps.avx2) run = MultiplyAddAvx2;
  if (caps.avx512) run = MultiplyAddAvx512;
#endif
  double best = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    const int64_t chunks = pool.num_threads() * 4;
    double flops = 0;
    const Clock::time_point start = Clock::now();
    pool.ParallelFor(chunks, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        float sink = 0.5f;
        const double done = run(&sink);
        if (i == 0) flops = done * static_cast<double>(chunks);
      }
    });
    best = std::max(best, flops / Seconds(start));
  }
  (void)caps;
  return best;
}

double MeasureReadBandwidth(const device::Capabilities& caps, std::span<const uint8_t> buffer,
                            device::ThreadPool& pool) {
  uint64_t (*read)(const uint8_t*, int64_t) = ReadAllPortable;
#if defined(__x86_64__)
  if (caps.avx2) read = ReadAllAvx2;
  if (caps.avx512) read = ReadAllAvx512;
#endif
  (void)caps;
  constexpr int64_t kGrainBytes = 16 << 10;
  // Small buffers are read several times per measurement, so that the clock's grain does not show.
  const int64_t repeats = std::max<int64_t>(1, (64 << 20) / static_cast<int64_t>(buffer.size()));
  double best = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    const Clock::time_point start = Clock::now();
    for (int64_t r = 0; r < repeats; ++r) {
      const int64_t grains = static_cast<int64_t>(buffer.size()) / kGrainBytes;
      pool.ParallelFor(grains, 1, [&](int64_t begin, int64_t end, int) {
        uint64_t sum = read(buffer.data() + begin * kGrainBytes, (end - begin) * kGrainBytes);
        asm volatile("" : "+r"(sum));
      });
    }
    best = std::max(best, static_cast<double>(buffer.size()) * repeats / Seconds(start));
  }
  return best;
}

}  // namespace pagemill::ops::linear
