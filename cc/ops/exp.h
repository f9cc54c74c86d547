// File: cc/ops/exp.h
// e^x in fp32, written so that compilers vectorize loops over it. Relative error below 2e-7 on
// [-87, 88]; 0 below -87.3 (-inf included); x above 88 counts as 88. NaN gives an unspecified
// number: callers check their input.
//
// Static, so that files compiled for different instruction sets keep copies of their own.
#ifndef PAGEMILL_CC_OPS_EXP_H_
#define PAGEMILL_CC_OPS_EXP_H_

#include <bit>
#include <cstdint>

namespace pagemill::ops {

// x = n ln2 + r with |r| <= ln2 / 2; e^r by its Taylor polynomial of degree 7 (remainder < 6e-9);
// 2^n by writing the exponent. ln2 is split in two so that n ln2_high is exact (Cody and Waite).
static inline float Exp(float x) {
  constexpr float kLog2E = 1.44269504f;
  constexpr float kLn2High = 0.693359375f;
  constexpr float kLn2Low = -2.12194440e-4f;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const float clamped = x > 88.0f ? 88.0f : (x < -87.3f ? -87.3f : x);
  const float shifted = clamped * kLog2E + kRound;
  const float n = shifted - kRound;
  const float r = (clamped - n * kLn2High) - n * kLn2Low;
  float p = 1.0f / 5040.0f;
  p = p * r + 1.0f / 720.0f;
  p = p * r + 1.0f / 120.0f;
  p = p * r + 1.0f / 24.0f;
  p = p * r + 1.0f / 6.0f;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  // The low bits of `shifted` hold n; moved to the exponent field of 1.0 they make 2^n.
  const int32_t bits = (std::bit_cast<int32_t>(shifted) << 23) + 0x3f800000;
  const float scale = std::bit_cast<float>(bits);
  return x < -87.3f ? 0.0f : p * scale;
}

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_EXP_H_
