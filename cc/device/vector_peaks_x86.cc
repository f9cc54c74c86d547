// Multiply-add peaks of AVX2, AVX-VNNI, AVX-512, AVX512-BF16 and AVX512-VNNI, operands in
// registers.
#include "cc/device/peak_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace pagemill::device {

#if defined(__x86_64__)
namespace {

// Independent sums: at least two units times a latency of five. AVX2 has 16 registers in all. Their
// initial values differ, because the compiler would merge equal ones.
constexpr int kChains = 12;

[[gnu::target("avx2,fma")]] double MultiplyAvx2(const std::byte* operands, int64_t steps) {
  const __m256 a = _mm256_load_ps(reinterpret_cast<const float*>(operands));
  const __m256 b = _mm256_load_ps(reinterpret_cast<const float*>(operands + 32));
  __m256 sums[kChains];
#pragma GCC unroll 12
  for (int c = 0; c < kChains; ++c) sums[c] = _mm256_set1_ps(static_cast<float>(c));
  for (int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) sums[c] = _mm256_fmadd_ps(a, b, sums[c]);
  }
#pragma GCC unroll 12
  for (int c = 0; c < kChains; ++c) asm volatile("" : : "x"(sums[c]));
  return 2.0 * 8 * kChains * static_cast<double>(steps);
}

// Bytes into sums of 16 bits, which wrap around.
[[gnu::target("avx2")]] double MultiplyAvx2Int8(const std::byte* operands, int64_t steps) {
  __m256i a = _mm256_load_si256(reinterpret_cast<const __m256i*>(operands));
  const __m256i b = _mm256_load_si256(reinterpret_cast<const __m256i*>(operands + 32));
  __m256i sums[kChains];
#pragma GCC unroll 12
  for (int c = 0; c < kChains; ++c) sums[c] = _mm256_set1_epi32(c);
  for (int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) {
      asm volatile("" : "+x"(a));  // prevents merging equal products
      sums[c] = _mm256_add_epi16(sums[c], _mm256_maddubs_epi16(a, b));
    }
  }
#pragma GCC unroll 12
  for (int c = 0; c < kChains; ++c) asm volatile("" : : "x"(sums[c]));
  return 2.0 * 32 * kChains * static_cast<double>(steps);
}

[[gnu::target("avx2")]] double MultiplyAvx2Int16(const std::byte* operands, int64_t steps) {
  __m256i a = _mm256_load_si256(reinterpret_cast<const __m256i*>(operands));
  const __m256i b = _mm256_load_si256(reinterpret_cast<const __m256i*>(operands + 32));
  __m256i sums[kChains];
#pragma GCC unroll 12
  for (int c = 0; c < kChains; ++c) sums[c] = _mm256_set1_epi32(c);
  for (int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) {
      asm volatile("" : "+x"(a));  // prevents merging equal products
      sums[c] = _mm256_add_epi32(sums[c], _mm256_madd_epi16(a, b));
    }
  }
#pragma GCC unroll 12
  for (int c = 0; c < kChains; ++c) asm volatile("" : : "x"(sums[c]));
  return 2.0 * 16 * kChains * static_cast<double>(steps);
}

[[gnu::target("avx2,avxvnni")]] double MultiplyAvxVnni(const std::byte* operands, int64_t steps) {
  const __m256i a = _mm256_load_si256(reinterpret_cast<const __m256i*>(operands));
  const __m256i b = _mm256_load_si256(reinterpret_cast<const __m256i*>(operands + 32));
  __m256i sums[kChains];
#pragma GCC unroll 12
  for (int c = 0; c < kChains; ++c) sums[c] = _mm256_set1_epi32(c);
  for (int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) sums[c] = _mm256_dpbusd_avx_epi32(sums[c], a, b);
  }
#pragma GCC unroll 12
  for (int c = 0; c < kChains; ++c) asm volatile("" : : "x"(sums[c]));
  return 2.0 * 32 * kChains * static_cast<double>(steps);
}

[[gnu::target("avx512f")]] double MultiplyAvx512(const std::byte* operands, int64_t steps) {
  const __m512 a = _mm512_load_ps(operands);
  const __m512 b = _mm512_load_ps(operands + 64);
  __m512 sums[kChains];
#pragma GCC unroll 12
  for (int c = 0; c < kChains; ++c) sums[c] = _mm512_set1_ps(static_cast<float>(c));
  for (int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) sums[c] = _mm512_fmadd_ps(a, b, sums[c]);
  }
#pragma GCC unroll 12
  for (int c = 0; c < kChains; ++c) asm volatile("" : : "v"(sums[c]));
  return 2.0 * 16 * kChains * static_cast<double>(steps);
}

[[gnu::target("avx512f,avx512bf16")]] double MultiplyAvx512Bf16(const std::byte* operands,
                                                                int64_t steps) {
  const __m512bh a = (__m512bh)_mm512_load_si512(operands);
  const __m512bh b = (__m512bh)_mm512_load_si512(operands + 64);
  __m512 sums[kChains];
#pragma GCC unroll 12
  for (int c = 0; c < kChains; ++c) sums[c] = _mm512_set1_ps(static_cast<float>(c));
  for (int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) sums[c] = _mm512_dpbf16_ps(sums[c], a, b);
  }
#pragma GCC unroll 12
  for (int c = 0; c < kChains; ++c) asm volatile("" : : "v"(sums[c]));
  return 2.0 * 32 * kChains * static_cast<double>(steps);
}

[[gnu::target("avx512f,avx512vnni")]] double MultiplyAvx512Vnni(const std::byte* operands,
                                                                int64_t steps) {
  const __m512i a = _mm512_load_si512(operands);
  const __m512i b = _mm512_load_si512(operands + 64);
  __m512i sums[kChains];
#pragma GCC unroll 12
  for (int c = 0; c < kChains; ++c) sums[c] = _mm512_set1_epi32(c);
  for (int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) sums[c] = _mm512_dpbusd_epi32(sums[c], a, b);
  }
#pragma GCC unroll 12
  for (int c = 0; c < kChains; ++c) asm volatile("" : : "v"(sums[c]));
  return 2.0 * 64 * kChains * static_cast<double>(steps);
}

constexpr PeakKernel kKernels[] = {
    {"avx2", "f32", "registers", [](const Capabilities& c) { return c.cpu.avx2; }, 64,
     MultiplyAvx2},
    {"avx2_int8", "int8", "registers", [](const Capabilities& c) { return c.cpu.avx2; }, 64,
     MultiplyAvx2Int8},
    {"avx2_int16", "int16", "registers", [](const Capabilities& c) { return c.cpu.avx2; }, 64,
     MultiplyAvx2Int16},
    {"avx_vnni", "int8", "registers", [](const Capabilities& c) { return c.cpu.avx_vnni; }, 64,
     MultiplyAvxVnni},
    {"avx512", "f32", "registers", [](const Capabilities& c) { return c.cpu.avx512; }, 128,
     MultiplyAvx512},
    {"avx512_bf16", "bf16", "registers", [](const Capabilities& c) { return c.cpu.avx512_bf16; },
     128, MultiplyAvx512Bf16},
    {"avx512_vnni", "int8", "registers", [](const Capabilities& c) { return c.cpu.avx512_vnni; },
     128, MultiplyAvx512Vnni},
};

}  // namespace

std::span<const PeakKernel> VectorPeaksX86() { return kKernels; }

#else

std::span<const PeakKernel> VectorPeaksX86() { return {}; }

#endif

}  // namespace pagemill::device
