// File: cc/tensor/float16.h
// Conversions between float and the two 16-bit floating point formats, bit-exact on every CPU:
// IEEE binary16 (f16) and bfloat16 (bf16). Narrowing rounds to nearest, ties to even, as the
// hardware instructions do; NaN stays NaN (quiet), overflow becomes infinity, subnormals are kept.
//
//   uint16_t bits = FloatToBf16(0.1f);
//   float x = Bf16ToFloat(bits);
//
// Every function is always inlined, so that the copies in files compiled for different instruction
// sets never meet in the linker.
#ifndef PAGEMILL_CC_TENSOR_FLOAT16_H_
#define PAGEMILL_CC_TENSOR_FLOAT16_H_

#include <bit>
#include <cstdint>

namespace pagemill {

[[gnu::always_inline]] inline float Bf16ToFloat(uint16_t bits) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(bits) << 16);
}

[[gnu::always_inline]] inline uint16_t FloatToBf16(float value) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {  // NaN: keep sign and top payload bits, make it quiet
    return static_cast<uint16_t>((bits >> 16) | 0x40u);
  }
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// Branch-free, so that loops over it vectorise. The exponent of binary16 is rebased by a
// multiplication with 2^112, which normalizes subnormals too; infinity and NaN need the exponent
// field of float filled up.
[[gnu::always_inline]] inline float F16ToFloat(uint16_t bits) {
#if defined(__aarch64__)
  return static_cast<float>(__builtin_bit_cast(__fp16, bits));
#else
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t magnitude = static_cast<uint32_t>(bits & 0x7fffu) << 13;
  const float rebased = __builtin_bit_cast(float, magnitude) * 0x1p112f;
  const uint32_t special = magnitude >= (0x7c00u << 13) ? 0x7f800000u : 0u;
  const uint32_t quiet = magnitude > (0x7c00u << 13) ? 0x400000u : 0u;
  return __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, rebased) | sign | special | quiet);
#endif
}

[[gnu::always_inline]] inline uint16_t FloatToF16(float value) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {  // NaN
    return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  }
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // >= 65520
  if (magnitude < 0x38800000u) {
    // Below 2^-14: adding 2^-1 puts the subnormal's unit (2^-24) at the float's last bit, so the
    // addition itself rounds to nearest even.
    const float sum = __builtin_bit_cast(float, magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (__builtin_bit_cast(uint32_t, sum) - 0x3f000000u));
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u;
  return static_cast<uint16_t>(sign | (rounded >> 13));
}

}  // namespace pagemill

#endif  // PAGEMILL_CC_TENSOR_FLOAT16_H_
