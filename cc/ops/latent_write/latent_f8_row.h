// File: cc/ops/latent_write/latent_f8_row.h
// A row of a latent cache in fp8. Its last elements, which positions rotate, are stored in bf16,
// and those before them as f8_e4m3 codes with a scale for each 128:
//
//   codes   f8_e4m3 [codes]
//   scales  f32 [groups]      an element is its code times the scale of its group
//   rest    bf16 [rest]
//
// Each part begins at a multiple of 16 bytes, and so does each row. 512 elements and 64 of a
// rotated key take 656 bytes, as other engines lay them out.
//
//   constexpr LatentF8Row kRow = {.codes = 512, .rest = 64};
//   const uint32_t scale = LatentScaleBits(largest);   // of the group's magnitudes, as bits
//   row[i] = LatentCode(value, scale);
//
// Scales are powers of two, so that elements are exact in bf16. Every function is always inlined,
// so that the copies in files compiled for different instruction sets never meet in the linker.
#ifndef PAGEMILL_CC_OPS_LATENT_WRITE_LATENT_F8_ROW_H_
#define PAGEMILL_CC_OPS_LATENT_WRITE_LATENT_F8_ROW_H_

#include <cstdint>

#include "cc/tensor/float8.h"

namespace pagemill::ops {

inline constexpr int64_t kLatentGroup = 128;  // codes of a scale

struct LatentF8Row {
  int64_t codes = 0;  // elements in f8_e4m3
  int64_t rest = 0;   // elements in bf16, behind them

  [[gnu::always_inline]] constexpr int64_t groups() const {
    return (codes + kLatentGroup - 1) / kLatentGroup;
  }
  [[gnu::always_inline]] constexpr int64_t scales_offset() const { return Align(codes); }
  [[gnu::always_inline]] constexpr int64_t rest_offset() const {
    return Align(scales_offset() + 4 * groups());
  }
  [[gnu::always_inline]] constexpr int64_t bytes() const { return Align(rest_offset() + 2 * rest); }

 private:
  [[gnu::always_inline]] static constexpr int64_t Align(int64_t bytes) {
    return (bytes + 15) / 16 * 16;
  }
};

// The bits of the scale of a group whose largest magnitude has the bits `largest` as a float: the
// smallest power of two from 2^-100 to 2^100 with which that is at most 448; NaN for infinity and
// NaN.
[[gnu::always_inline]] constexpr uint32_t LatentScaleBits(uint32_t largest) {
  if (largest >= 0x7f800000u) return 0x7fc00000u;
  // 448 is 1.75 * 2^8: a larger mantissa carries into the exponent.
  const uint32_t exponent = (largest + 0x1fffffu) >> 23;
  constexpr uint32_t kLowest = 127 - 100, kHighest = 127 + 100;
  if (exponent < kLowest + 8) return kLowest << 23;
  return (exponent < kHighest + 8 ? exponent - 8 : kHighest) << 23;
}

// The code of an element of a group: 0 if its scale is NaN.
[[gnu::always_inline]] constexpr uint8_t LatentCode(float value, uint32_t scale) {
  if (scale >= 0x7f800000u) return 0;
  return FloatToF8E4M3(value * __builtin_bit_cast(float, (254u << 23) - scale));
}

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_LATENT_WRITE_LATENT_F8_ROW_H_
