// File: cuda/ops/rotary/rotary_heads.h
// Rotation of a token's heads by warps, for `rotary` and the op that also stores keys.
#ifndef PAGEMILL_CUDA_OPS_ROTARY_ROTARY_HEADS_H_
#define PAGEMILL_CUDA_OPS_ROTARY_ROTARY_HEADS_H_

#include <cstdint>

#include "cc/ops/rotary/rotary.h"
#include "cuda/gpu_rows.h"
#include "cuda/gpu_vendor.h"

namespace pagemill::gpu {

struct RotaryAngleParams {
  const float* data;  // inverse frequencies [dims, pairs], rows dim_stride apart
  int64_t dim_stride;
  int32_t dims;
  int32_t pairs;
  int32_t interleaved;
  float mscale;
  int32_t begin;   // the first element that rotates
  int32_t offset;  // added to positions
};

struct RotaryHeadParams {
  int32_t q_heads, k_heads, head_dim;

  static RotaryHeadParams Of(const ops::RotaryArgs& args) {
    return {static_cast<int32_t>(args.q.shape[1]), static_cast<int32_t>(args.k.shape[1]),
            static_cast<int32_t>(args.q.shape[2])};
  }
};

inline RotaryAngleParams AngleParamsOf(const ops::RotaryArgs& args) {
  const ops::RotaryFrequencies frequencies = ops::FrequenciesOf(args);
  return {frequencies.inv_freq, frequencies.dim_stride,          frequencies.dims,
          frequencies.pairs,    frequencies.interleaved ? 1 : 0, frequencies.mscale,
          frequencies.begin,    frequencies.offset};
}

// Within 1.5e-7 for |angle| up to 2^20: reduced by pi / 2 in double, then polynomials (Cephes).
// Functions of <cmath> would take a stack for their reduction of large angles.
PAGEMILL_DEVICE void SinCos(float angle, float* sine, float* cosine) {
  constexpr double kHalfPi = 1.5707963267948966, kInverse = 0.63661977236758134;
  const double quarters = rint(static_cast<double>(angle) * kInverse);
  const float x = static_cast<float>(static_cast<double>(angle) - quarters * kHalfPi);
  const float x2 = x * x;
  const float s =
      x + x * x2 * (-1.6666654611e-1f + x2 * (8.3321608736e-3f + x2 * -1.9515295891e-4f));
  const float c =
      1 - 0.5f * x2 +
      x2 * x2 * (4.166664568298827e-2f + x2 * (-1.388731625493765e-3f + x2 * 2.443315711809948e-5f));
  const int quadrant = static_cast<int>(static_cast<int64_t>(quarters) & 3);
  *sine = quadrant % 2 == 0 ? s : c;
  *cosine = quadrant % 2 == 0 ? c : s;
  if (quadrant >= 2) *sine = -*sine;
  if (quadrant == 1 || quadrant == 2) *cosine = -*cosine;
}

// A token's, for each pair, in shared memory.
struct TokenAngles {
  const float* sines;
  const float* cosines;
};

// Every thread of the block calls it. `position` has angles.dims elements.
PAGEMILL_DEVICE TokenAngles AnglesOf(const RotaryAngleParams& angles, const int32_t* position) {
  PAGEMILL_SHARED(float[ops::kMaxRotaryPairs], sines);
  PAGEMILL_SHARED(float[ops::kMaxRotaryPairs], cosines);
  for (int32_t i = static_cast<int32_t>(ThreadIndex().x); i < angles.pairs;
       i += static_cast<int32_t>(BlockSize().x)) {
    float angle = 0;
    for (int32_t d = 0; d < angles.dims; ++d) {
      angle += RoundedProduct(static_cast<float>(position[d] + angles.offset),
                              angles.data[d * angles.dim_stride + i]);
    }
    SinCos(angle, &sines[i], &cosines[i]);
    sines[i] *= angles.mscale;
    cosines[i] *= angles.mscale;
  }
  SyncBlock();
  return {sines, cosines};
}

// A head, by a warp; y may be x.
template <typename T>
PAGEMILL_DEVICE void RotateHead(const RotaryAngleParams& angles, const TokenAngles& token,
                                int head_dim, const T* x, T* y) {
  for (int pair = Lane(); pair < angles.pairs; pair += WarpLanes()) {
    const int first = angles.begin + (angles.interleaved ? 2 * pair : pair);
    const int second = first + (angles.interleaved ? 1 : angles.pairs);
    const float a = ToFloat(x[first]), b = ToFloat(x[second]);
    y[first] = FromFloat<T>(a * token.cosines[pair] - b * token.sines[pair]);
    y[second] = FromFloat<T>(b * token.cosines[pair] + a * token.sines[pair]);
  }
  const int beside = head_dim - 2 * angles.pairs;
  for (int i = Lane(); i < beside; i += WarpLanes()) {
    const int d = i < angles.begin ? i : i + 2 * angles.pairs;
    y[d] = x[d];
  }
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_ROTARY_ROTARY_HEADS_H_
