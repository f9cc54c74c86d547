// The bodies of a RotaryKernel.
#include "cc/ops/rotary/rotary_token.h"

#include "cc/ops/vec/vec.h"

namespace pagemill::ops {
namespace {

// cos and sin of angle[i], times mscale; |angle| up to 2^20. A plain loop that compilers vectorize.
//
// angle = quadrant pi/2 + r with |r| <= pi/4. In double the product quadrant * pi/2 is off by at
// most 2^20 2^-53, far below the fp32 rounding of r. The polynomials minimize the largest relative
// error on [0, pi/4]: 3.8e-9 for the sine, 1.2e-10 for the cosine.
inline void SinCos(const float* angle, int count, float mscale, float* cos, float* sin) {
  constexpr double kTwoOverPi = 0.63661977236758134308;
  constexpr double kPiOver2 = 1.57079632679489661923;
  constexpr double kRound = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to an integer
  for (int i = 0; i < count; ++i) {
    const double a = angle[i];
    const double shifted = a * kTwoOverPi + kRound;
    const int32_t quadrant = static_cast<int32_t>(__builtin_bit_cast(int64_t, shifted));
    const float r = static_cast<float>(a - (shifted - kRound) * kPiOver2);
    const float z = r * r;
    const float s = r + r * z * (-0.16666655f + z * (8.3321603e-3f + z * -1.9515279e-4f));
    const float c =
        1.0f - 0.5f * z + z * z * (4.1666646e-2f + z * (-1.3887316e-3f + z * 2.4433155e-5f));
    const bool swap = (quadrant & 1) != 0;
    const int32_t sin_sign = (quadrant & 2) << 30;
    const int32_t cos_sign = ((quadrant + 1) & 2) << 30;
    const int32_t sin_bits = __builtin_bit_cast(int32_t, swap ? c : s) ^ sin_sign;
    const int32_t cos_bits = __builtin_bit_cast(int32_t, swap ? s : c) ^ cos_sign;
    sin[i] = __builtin_bit_cast(float, sin_bits) * mscale;
    cos[i] = __builtin_bit_cast(float, cos_bits) * mscale;
  }
}

inline void ComputeAngles(const RotaryFrequencies& frequencies, const int32_t* position,
                          RotaryAngles* angles) {
  const int pairs = frequencies.pairs;
  float angle[kMaxRotaryPairs];
  for (int i = 0; i < pairs; ++i) {
    angle[i] = static_cast<float>(position[0] + frequencies.offset) * frequencies.inv_freq[i];
  }
  for (int d = 1; d < frequencies.dims; ++d) {
    const float* inv_freq = frequencies.inv_freq + d * frequencies.dim_stride;
    const auto at = static_cast<float>(position[d] + frequencies.offset);
    for (int i = 0; i < pairs; ++i) angle[i] += at * inv_freq[i];
  }
  SinCos(angle, pairs, frequencies.mscale, angles->cos, angles->sin);
  if (!frequencies.interleaved) return;
  for (int i = pairs - 1; i >= 0;
       --i) {  // from the end: element i is read before 2 i >= i is written
    const float c = angles->cos[i];
    const float s = angles->sin[i];
    angles->cos[2 * i] = c;
    angles->cos[2 * i + 1] = c;
    angles->sin[2 * i] = -s;
    angles->sin[2 * i + 1] = s;
  }
}

inline void RotateHalves(const float* x, float* y, const RotaryAngles& angles, int pairs) {
  for (int i = 0; i < pairs; i += Vec::kLanes) {
    const int n = pairs - i < Vec::kLanes ? pairs - i : Vec::kLanes;
    const bool whole = n == Vec::kLanes;
    const Vec::F a = whole ? Vec::Load(x + i) : Vec::LoadN(x + i, n);
    const Vec::F b = whole ? Vec::Load(x + pairs + i) : Vec::LoadN(x + pairs + i, n);
    const Vec::F c = whole ? Vec::Load(angles.cos + i) : Vec::LoadN(angles.cos + i, n);
    const Vec::F s = whole ? Vec::Load(angles.sin + i) : Vec::LoadN(angles.sin + i, n);
    const Vec::F low = Vec::Fma(a, c, Vec::Mul(Vec::Sub(Vec::Zero(), b), s));
    const Vec::F high = Vec::Fma(b, c, Vec::Mul(a, s));
    if (whole) {
      Vec::Store(y + i, low);
      Vec::Store(y + pairs + i, high);
    } else {
      Vec::StoreN(y + i, low, n);
      Vec::StoreN(y + pairs + i, high, n);
    }
  }
}

inline void RotateInterleaved(const float* x, float* y, const RotaryAngles& angles, int pairs) {
  const auto rotate = [](Vec::F v, Vec::F c, Vec::F s) {
    return Vec::Fma(v, c, Vec::Mul(Vec::SwapPairs(v), s));
  };
  int i = 0;
  for (; i + Vec::kLanes <= 2 * pairs; i += Vec::kLanes) {
    Vec::Store(y + i,
               rotate(Vec::Load(x + i), Vec::Load(angles.cos + i), Vec::Load(angles.sin + i)));
  }
  if (i < 2 * pairs) {
    const int n = 2 * pairs - i;
    Vec::StoreN(
        y + i,
        rotate(Vec::LoadN(x + i, n), Vec::LoadN(angles.cos + i, n), Vec::LoadN(angles.sin + i, n)),
        n);
  }
}

inline void RotateHeads(const RotaryFrequencies& frequencies, const RotaryAngles& angles,
                        const RotaryHeads& heads) {
  const int pairs = frequencies.pairs;
  for (int64_t h = 0; h < heads.heads; ++h) {
    const float* x = heads.source + h * heads.head_dim + frequencies.begin;
    float* y = heads.target + h * heads.head_dim + frequencies.begin;
    if (frequencies.interleaved) {
      RotateInterleaved(x, y, angles, pairs);
    } else {
      RotateHalves(x, y, angles, pairs);
    }
    if (x == y) continue;
    const int64_t end = heads.head_dim - frequencies.begin;
    for (int64_t i = -frequencies.begin; i < 0; ++i) y[i] = x[i];
    for (int64_t i = 2 * pairs; i < end; ++i) y[i] = x[i];
  }
}

}  // namespace

const RotaryKernel PAGEMILL_VEC_NAME(kRotary) = {ComputeAngles, RotateHeads};

}  // namespace pagemill::ops
