// Multiply-add peaks of ASIMD: dot products of int8, and the matrix instructions of BF16 and I8MM,
// operands in registers. f32 is the portable peak: every aarch64 CPU has its 16-byte vectors.
#include "cc/device/peak_kernels.h"

#if defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace pagemill::device {

#if defined(__aarch64__)
namespace {

// Independent sums: four units times a latency of four. Their initial values differ, because the
// compiler would merge equal ones.
constexpr int kChains = 16;

[[gnu::target("arch=armv8.2-a+dotprod")]] double MultiplyDotprod(const std::byte* operands,
                                                                 int64_t steps) {
  const int8x16_t a = vld1q_s8(reinterpret_cast<const int8_t*>(operands));
  const int8x16_t b = vld1q_s8(reinterpret_cast<const int8_t*>(operands + 16));
  int32x4_t sums[kChains];
#pragma GCC unroll 16
  for (int c = 0; c < kChains; ++c) sums[c] = vdupq_n_s32(c);
  for (int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 16
    for (int c = 0; c < kChains; ++c) sums[c] = vdotq_s32(sums[c], a, b);
  }
#pragma GCC unroll 16
  for (int c = 0; c < kChains; ++c) asm volatile("" : : "w"(sums[c]));
  return 2.0 * 16 * kChains * static_cast<double>(steps);
}

// Each instruction multiplies [2, 4] by [4, 2].
[[gnu::target("arch=armv8.2-a+bf16")]] double MultiplyBf16(const std::byte* operands,
                                                           int64_t steps) {
  const bfloat16x8_t a = vld1q_bf16(reinterpret_cast<const bfloat16_t*>(operands));
  const bfloat16x8_t b = vld1q_bf16(reinterpret_cast<const bfloat16_t*>(operands + 16));
  float32x4_t sums[kChains];
#pragma GCC unroll 16
  for (int c = 0; c < kChains; ++c) sums[c] = vdupq_n_f32(static_cast<float>(c));
  for (int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 16
    for (int c = 0; c < kChains; ++c) sums[c] = vbfmmlaq_f32(sums[c], a, b);
  }
#pragma GCC unroll 16
  for (int c = 0; c < kChains; ++c) asm volatile("" : : "w"(sums[c]));
  return 2.0 * 16 * kChains * static_cast<double>(steps);
}

// Each instruction multiplies [2, 8] by [8, 2].
[[gnu::target("arch=armv8.2-a+i8mm")]] double MultiplyI8mm(const std::byte* operands,
                                                           int64_t steps) {
  const int8x16_t a = vld1q_s8(reinterpret_cast<const int8_t*>(operands));
  const int8x16_t b = vld1q_s8(reinterpret_cast<const int8_t*>(operands + 16));
  int32x4_t sums[kChains];
#pragma GCC unroll 16
  for (int c = 0; c < kChains; ++c) sums[c] = vdupq_n_s32(c);
  for (int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 16
    for (int c = 0; c < kChains; ++c) sums[c] = vmmlaq_s32(sums[c], a, b);
  }
#pragma GCC unroll 16
  for (int c = 0; c < kChains; ++c) asm volatile("" : : "w"(sums[c]));
  return 2.0 * 32 * kChains * static_cast<double>(steps);
}

constexpr PeakKernel kKernels[] = {
    {"asimd_dotprod", "int8", "registers",
     [](const Capabilities& c) { return c.cpu.asimd_dotprod; }, 64, MultiplyDotprod},
    {"asimd_bf16", "bf16", "registers", [](const Capabilities& c) { return c.cpu.asimd_bf16; }, 64,
     MultiplyBf16},
    {"asimd_i8mm", "int8", "registers", [](const Capabilities& c) { return c.cpu.asimd_i8mm; }, 64,
     MultiplyI8mm},
};

}  // namespace

std::span<const PeakKernel> VectorPeaksArm() { return kKernels; }

#else

std::span<const PeakKernel> VectorPeaksArm() { return {}; }

#endif

}  // namespace pagemill::device
