// File: cc/ops/vec/vec_math.h
// Exponential, hyperbolic tangent and the activations over `Vec` registers. Include it after one of
// vec_*.h (see vec_portable.h). Bounds are over all finite arguments and were measured against
// double precision (vec_test.cc):
//
//   Exp2        relative error 2e-7 if the result is above 2^-126, else a result between 0 and
//               2^-126; exactly 1 at 0; NaN gives NaN, large arguments infinity
//   Exp         relative error 2e-7 + 7e-8 |x|, from scaling x by log2(e); else as Exp2
//   Tanh        relative error 4e-7
//   Silu        relative error 4e-7 + 7e-8 |x| for x > -80, absolute 1e-6 max(1, |x|) everywhere
//   Softplus    relative error 4e-7 + 7e-8 |x| for x > -80, absolute 4e-7 max(1, |x|) everywhere
//   Sigmoid     as Silu, absolute error 4e-7
//   Elu         relative error 2e-6
//   GeluErf     absolute error 1e-6 max(1, |x|)
//   GeluTanh    the same, against the formula 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
#ifndef PAGEMILL_CC_OPS_VEC_VEC_MATH_H_
#define PAGEMILL_CC_OPS_VEC_VEC_MATH_H_

#include "cc/ops/activation/activation_kind.h"

namespace pagemill::ops {
namespace {

// 2^x: 2^round(x) times a polynomial in the fraction, |fraction| <= 1/2. The coefficients minimize
// the largest relative error (2.0e-9) with the constant term held at 1.
inline Vec::F Exp2(Vec::F x) {
  // Max and Min propagate NaN, since they then return their second operand.
  const Vec::F clamped = Vec::Min(Vec::Set(128.0f), Vec::Max(Vec::Set(-126.0f), x));
  const Vec::F n = Vec::Round(clamped);
  const Vec::F f = Vec::Sub(clamped, n);
  Vec::F p = Vec::Set(1.5353362e-4f);
  p = Vec::Fma(p, f, Vec::Set(1.3398875e-3f));
  p = Vec::Fma(p, f, Vec::Set(9.6184369e-3f));
  p = Vec::Fma(p, f, Vec::Set(5.5503324e-2f));
  p = Vec::Fma(p, f, Vec::Set(2.4022648e-1f));
  p = Vec::Fma(p, f, Vec::Set(6.9314718e-1f));
  p = Vec::Fma(p, f, Vec::Set(1.0f));
  return Vec::ScaleByPowerOf2(p, n);
}

constexpr float kLog2E = 1.44269504f;

inline Vec::F Exp(Vec::F x) { return Exp2(Vec::Mul(x, Vec::Set(kLog2E))); }

// Near 0 an odd polynomial (largest relative error 4.4e-9 below 0.625), else 1 - 2 / (e^2|x| + 1).
inline Vec::F Tanh(Vec::F x) {
  const Vec::F a = Vec::Abs(x);
  const Vec::F z = Vec::Mul(x, x);
  Vec::F p = Vec::Set(-5.7049817e-3f);
  p = Vec::Fma(p, z, Vec::Set(2.0639082e-2f));
  p = Vec::Fma(p, z, Vec::Set(-5.3739715e-2f));
  p = Vec::Fma(p, z, Vec::Set(1.3331442e-1f));
  p = Vec::Fma(p, z, Vec::Set(-3.3333281e-1f));
  const Vec::F near = Vec::Fma(Vec::Mul(x, z), p, x);
  const Vec::F e = Exp2(Vec::Mul(a, Vec::Set(2.0f * kLog2E)));
  const Vec::F far =
      Vec::Sub(Vec::Set(1.0f), Vec::Div(Vec::Set(2.0f), Vec::Add(e, Vec::Set(1.0f))));
  return Vec::Less(a, Vec::Set(0.625f), near, Vec::CopySign(far, x));
}

// x / (1 + e^-x).
inline Vec::F Silu(Vec::F x) {
  const Vec::F e = Exp2(Vec::Mul(x, Vec::Set(-kLog2E)));
  return Vec::Div(x, Vec::Add(Vec::Set(1.0f), e));
}

// log(1 + e^x) = max(x, 0) + log(1 + u) with u = e^-|x|, whose logarithm is 2 atanh(u / (2 + u)): the
// first seven terms of its series, for arguments up to 1/3.
inline Vec::F Softplus(Vec::F x) {
  const Vec::F u = Exp2(Vec::Mul(Vec::Abs(x), Vec::Set(-kLog2E)));
  const Vec::F z = Vec::Div(u, Vec::Add(u, Vec::Set(2.0f)));
  const Vec::F z2 = Vec::Mul(z, z);
  Vec::F p = Vec::Set(2.0f / 13);
  p = Vec::Fma(p, z2, Vec::Set(2.0f / 11));
  p = Vec::Fma(p, z2, Vec::Set(2.0f / 9));
  p = Vec::Fma(p, z2, Vec::Set(2.0f / 7));
  p = Vec::Fma(p, z2, Vec::Set(2.0f / 5));
  p = Vec::Fma(p, z2, Vec::Set(2.0f / 3));
  p = Vec::Fma(p, z2, Vec::Set(2.0f));
  return Vec::Fma(p, z, Vec::Max(Vec::Zero(), x));
}

// x / (1 + e^-1.702x), an approximation of x Phi(x).
inline Vec::F QuickGelu(Vec::F x) {
  const Vec::F e = Exp2(Vec::Mul(x, Vec::Set(-1.702f * kLog2E)));
  return Vec::Div(x, Vec::Add(Vec::Set(1.0f), e));
}

// x Phi(x) with Phi(-|x|) = erfc(|x| / sqrt(2)) / 2 by formula 7.1.26 of Abramowitz and Stegun
// (absolute error of erfc 1.5e-7), and Phi(|x|) = 1 - Phi(-|x|).
inline Vec::F GeluErf(Vec::F x) {
  constexpr float kSqrtHalf = 0.70710678f;
  const Vec::F z = Vec::Mul(Vec::Abs(x), Vec::Set(kSqrtHalf));
  const Vec::F one = Vec::Set(1.0f);
  const Vec::F t = Vec::Div(one, Vec::Fma(z, Vec::Set(0.3275911f), one));
  Vec::F p = Vec::Set(1.061405429f);
  p = Vec::Fma(p, t, Vec::Set(-1.453152027f));
  p = Vec::Fma(p, t, Vec::Set(1.421413741f));
  p = Vec::Fma(p, t, Vec::Set(-0.284496736f));
  p = Vec::Fma(p, t, Vec::Set(0.254829592f));
  const Vec::F e = Exp2(Vec::Mul(Vec::Mul(z, z), Vec::Set(-kLog2E)));
  const Vec::F tail = Vec::Mul(Vec::Mul(Vec::Mul(p, t), e), Vec::Set(0.5f));
  const Vec::F phi = Vec::Less(x, Vec::Zero(), tail, Vec::Sub(one, tail));
  return Vec::Mul(x, phi);
}

// 0.5 x (1 + tanh(u)) = x / (1 + e^-2u).
inline Vec::F GeluTanh(Vec::F x) {
  constexpr float kSqrt2OverPi = 0.79788456f;
  const Vec::F x2 = Vec::Mul(x, x);
  const Vec::F inner = Vec::Fma(Vec::Mul(x2, x), Vec::Set(0.044715f), x);
  const Vec::F e = Exp2(Vec::Mul(inner, Vec::Set(-2.0f * kSqrt2OverPi * kLog2E)));
  return Vec::Div(x, Vec::Add(Vec::Set(1.0f), e));
}

inline Vec::F ReluSquared(Vec::F x) {
  const Vec::F positive = Vec::Max(Vec::Zero(), x);
  return Vec::Mul(positive, positive);
}

// 1 / (1 + e^-x).
inline Vec::F Sigmoid(Vec::F x) {
  const Vec::F one = Vec::Set(1.0f);
  return Vec::Div(one, Vec::Add(one, Exp2(Vec::Mul(x, Vec::Set(-kLog2E)))));
}

// x, or e^x - 1 = 2 t / (1 - t) with t = tanh(x / 2) if x < 0, which keeps its digits near 0.
inline Vec::F Elu(Vec::F x) {
  const Vec::F t = Tanh(Vec::Mul(x, Vec::Set(0.5f)));
  const Vec::F negative = Vec::Div(Vec::Add(t, t), Vec::Sub(Vec::Set(1.0f), t));
  return Vec::Less(x, Vec::Zero(), negative, x);
}

template <ActivationKind kind>
inline Vec::F Activate(Vec::F x) {
  if constexpr (kind == ActivationKind::kSilu) return Silu(x);
  if constexpr (kind == ActivationKind::kGelu) return GeluErf(x);
  if constexpr (kind == ActivationKind::kGeluTanh) return GeluTanh(x);
  if constexpr (kind == ActivationKind::kRelu) return Vec::Max(Vec::Zero(), x);
  if constexpr (kind == ActivationKind::kTanh) return Tanh(x);
  if constexpr (kind == ActivationKind::kQuickGelu) return QuickGelu(x);
  if constexpr (kind == ActivationKind::kReluSquared) return ReluSquared(x);
  if constexpr (kind == ActivationKind::kIdentity) return x;
  if constexpr (kind == ActivationKind::kSigmoid) return Sigmoid(x);
  if constexpr (kind == ActivationKind::kElu) return Elu(x);
  if constexpr (kind == ActivationKind::kSoftplus) return Softplus(x);
}

}  // namespace
}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_VEC_VEC_MATH_H_
