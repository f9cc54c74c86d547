// File: cc/tensor/float8.h
// The 8-bit floating point format of weights and KV caches, e4m3 (OCP 8-bit Floating Point
// Specification 1.0): a sign, 4 bits of exponent with bias 7, 3 bits of mantissa. No infinity; all
// ones but the sign are NaN; the largest number is 448, the smallest 2^-9. bf16 and f32 hold every
// one of them.
//
//   float x = F8E4M3ToFloat(0x38);       // 1
//   uint8_t bits = FloatToF8E4M3(0.1f);  // nearest, ties to even; beyond 448: +-448
//
// Every function is always inlined, so that the copies in files compiled for different instruction
// sets never meet in the linker.
#ifndef PAGEMILL_CC_TENSOR_FLOAT8_H_
#define PAGEMILL_CC_TENSOR_FLOAT8_H_

#include <cstdint>

namespace pagemill {

// Branch-free, so that loops over it vectorise. The bits become those of a float whose exponent is
// 120 too small, subnormals included; a multiplication puts that right.
[[gnu::always_inline]] constexpr float F8E4M3ToFloat(uint8_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x80u) << 24;
  const uint32_t magnitude = bits & 0x7fu;
  const float rebased = __builtin_bit_cast(float, magnitude << 20) * 0x1p120f;
  const uint32_t nan = magnitude == 0x7fu ? 0x7fc00000u : 0u;
  return __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, rebased) | sign | nan);
}

[[gnu::always_inline]] constexpr uint8_t FloatToF8E4M3(float value) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, value);
  const uint8_t sign = static_cast<uint8_t>(bits >> 24 & 0x80u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint8_t>(sign | 0x7fu);
  if (magnitude >= 0x43e00000u) return static_cast<uint8_t>(sign | 0x7eu);  // 448 and more
  if (magnitude < 0x3c800000u) {
    // Below 2^-6: adding 2^14 puts the subnormal's unit (2^-9) at the float's last bit, so the
    // addition itself rounds to nearest even.
    const float sum = __builtin_bit_cast(float, magnitude) + 0x1p14f;
    return static_cast<uint8_t>(sign | (__builtin_bit_cast(uint32_t, sum) - 0x46800000u));
  }
  const uint32_t rounded = magnitude + 0x7ffffu + ((magnitude >> 20) & 1u) - 0x3c000000u;
  return static_cast<uint8_t>(sign | (rounded >> 20));
}

}  // namespace pagemill

#endif  // PAGEMILL_CC_TENSOR_FLOAT8_H_
