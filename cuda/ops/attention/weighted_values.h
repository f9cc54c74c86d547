// File: cuda/ops/attention/weighted_values.h
// Weights of a tile of keys, and values times them, on tensor cores, for every kernel of attention.
// A warp has 16 rows, of which a lane holds g and g + 8 for g = Lane() / 4, as Mma16x8x16 has them:
// scores[n][i] is of row g + 8 * (i / 2) and key 8 * n + 2 * (Lane() % 4) + i % 2.
//
//   float scores[kKeys / 8][4] = ...;  // -INFINITY: not seen
//   uint32_t weights[kKeys / 8][2];
//   const float kept = WeighRow(/*r=*/0, scores, state, weights);  // and of row 1
//   ...  // sums of row 0 of the keys before times `kept`
//   AddValues</*kAllSeen=*/false>(weights, values, stride, head_dim, sums);
#ifndef PAGEMILL_CUDA_OPS_ATTENTION_WEIGHTED_VALUES_H_
#define PAGEMILL_CUDA_OPS_ATTENTION_WEIGHTED_VALUES_H_

#include <cmath>
#include <cstdint>

#include "cuda/gpu_reduce.h"
#include "cuda/gpu_vendor.h"

namespace pagemill::gpu {

// The softmax of a row's scores so far.
struct SoftmaxState {
  float most;  // -INFINITY: no key
  float sum;   // of the weights e^(score - most)
};

PAGEMILL_DEVICE uint32_t PairOf(BFloat16 low, BFloat16 high) {
  return static_cast<uint32_t>(low.bits) | static_cast<uint32_t>(high.bits) << 16;
}

// 0xffff in each half that is infinite or NaN.
PAGEMILL_DEVICE uint32_t NotFinite(uint32_t pair) {
  const uint32_t low = (pair & 0x7f80u) == 0x7f80u ? 0xffffu : 0;
  const uint32_t high = (pair & 0x7f800000u) == 0x7f800000u ? 0xffff0000u : 0;
  return low | high;
}

// Makes weights of a row's scores, rounded to bf16 in pairs, with a maximum that is that of the
// keys so far; the sum in `state` is this lane's. Returns what sums of the keys before are to be
// multiplied with.
template <int kBlocks>
PAGEMILL_DEVICE float WeighRow(int r, const float (&scores)[kBlocks][4], SoftmaxState& state,
                               uint32_t (&weights)[kBlocks][2]) {
  float most = state.most;
  PAGEMILL_UNROLL
  for (int n = 0; n < kBlocks; ++n) {
    most = fmaxf(most, fmaxf(scores[n][2 * r], scores[n][2 * r + 1]));
  }
  most = WarpReduce(most, Max{}, 4);
  const float kept = state.most == most ? 1 : Exp(state.most - most);
  float sum = 0;
  PAGEMILL_UNROLL
  for (int n = 0; n < kBlocks; ++n) {
    BFloat16 pair[2];
    PAGEMILL_UNROLL
    for (int i = 0; i < 2; ++i) {
      const float score = scores[n][2 * r + i];
      pair[i] = FromFloat<BFloat16>(score == -INFINITY ? 0 : Exp(score - most));
      sum += ToFloat(pair[i]);
    }
    weights[n][r] = PairOf(pair[0], pair[1]);
  }
  state = {most, fmaf(state.sum, kept, sum)};
  return kept;
}

// Mma16x8x16(sums, a, b) for weights `a`, which are 0 of keys that a row does not see, and values
// `b`. Values that are not finite make sums NaN of the rows that see them alone: the instruction
// would multiply them with the other rows' zeros. kAllSeen: every row of the warp sees all keys.
template <bool kAllSeen>
PAGEMILL_DEVICE void AddValueProduct(const uint32_t (&a)[4], const uint32_t (&b)[2],
                                     float (&sums)[4]) {
  if constexpr (kAllSeen) {
    Mma16x8x16(sums, a, b);
  } else {
    const uint32_t bad[2] = {NotFinite(b[0]), NotFinite(b[1])};
    Mma16x8x16(sums, a, {b[0] & ~bad[0], b[1] & ~bad[1]});
    if (Ballot(AllLanes(), (bad[0] | bad[1]) != 0) == 0) return;
    constexpr uint32_t kOnes = 0x3f803f80u;
    float seen[4] = {};
    Mma16x8x16(seen, a, {bad[0] & kOnes, bad[1] & kOnes});
    PAGEMILL_UNROLL
    for (int i = 0; i < 4; ++i) sums[i] = seen[i] > 0 ? NAN : sums[i];
  }
}

// Adds up the `columns` of values, whose rows, one a key, begin `stride` elements after each other
// in shared memory: sums[n][i] is of row g + 8 * (i / 2) and column 8 * n + 2 * (Lane() % 4) + i % 2.
template <bool kAllSeen, int kBlocks, int kSums>
PAGEMILL_DEVICE void AddValues(const uint32_t (&weights)[kBlocks][2], const BFloat16* values,
                               int stride, int columns, float (&sums)[kSums][4]) {
  const BFloat16* const value = values + Lane() % 16 * stride + Lane() / 16 * 8;
  PAGEMILL_UNROLL
  for (int n = 0; n < kBlocks; n += 2) {
    const uint32_t a[4] = {weights[n][0], weights[n][1], weights[n + 1][0], weights[n + 1][1]};
    PAGEMILL_UNROLL
    for (int chunk = 0; chunk < kSums / 2; ++chunk) {
      if (chunk * 16 >= columns) break;
      uint32_t b[4];
      LoadTransposed(b, value + n * 8 * stride + chunk * 16);
      AddValueProduct<kAllSeen>(a, {b[0], b[1]}, sums[2 * chunk]);
      AddValueProduct<kAllSeen>(a, {b[2], b[3]}, sums[2 * chunk + 1]);
    }
  }
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_ATTENTION_WEIGHTED_VALUES_H_
