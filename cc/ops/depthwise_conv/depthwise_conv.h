// File: cc/ops/depthwise_conv/depthwise_conv.h
// Depthwise convolution over the tokens of each request, along the request or over the grid of an
// image, as encoders of audio and images apply it, or over positions that each token has. It has no
// state: a step has all tokens of an encoder's request. That of decoders, which continue from the
// step before, is `causal_conv`.
//
//   y[t, c] = bias[c] + sum_k w[c, k] * x[row(t, k), c], or with an index
//   y[t, j, c] = bias[c] + sum_k w[c, k] * x[t, index[j, k], c]
//
//   inputs   x      act [T, ...]  rows of C channels, or with an index of P C, in any shape
//            w      f32 [C, ...]  K taps of each channel
//            bias   f32 [C] or missing
//            index  i32 [J, K] or left out: positions from 0 to P - 1; others add nothing
//   outputs  y      act [T, ...]  rows of C channels, or with an index of J C, in any shape
//   attributes  before = 0, the taps in front of a token, 0 <= before < K; or grid = 1, with K the
//               square of an odd number; neither with an index
//   batch    num_tokens, num_requests, query_start; with grid grid_positions
//   aliasing none
//
// row(t, k) is t + k - before. With grid and S^2 taps it is the token whose time is that of t, and
// whose row and column of the grid are those of t plus k / S - S / 2, rounded down, and k % S -
// S / 2; the last one if there are several. A tap whose row is not of t's request adds nothing.
//
// 1 <= K <= kMaxDepthwiseTaps. The taps are added in order, so the bits of y do not depend on other
// requests or on threads. Error bound: K * 2^-23 of the sum of |w x|.
//
// Kernels: "avx512", "avx2", "portable", "reference" (accumulates in double).
#ifndef PAGEMILL_CC_OPS_DEPTHWISE_CONV_DEPTHWISE_CONV_H_
#define PAGEMILL_CC_OPS_DEPTHWISE_CONV_DEPTHWISE_CONV_H_

#include <cstddef>
#include <cstdint>

#include "cc/ops/op.h"

namespace pagemill::ops {

inline constexpr int64_t kMaxDepthwiseTaps = 64;

inline constexpr size_t kDepthwiseIndex = 3;  // an optional input

// Results [T, J], each of `channels` elements; J and P are 1 without an index.
struct DepthwiseConvArgs {
  TensorView x, w, bias, y;
  int64_t tokens = 0;     // T
  int64_t results = 1;    // J
  int64_t positions = 1;  // P
  int64_t channels = 0;
  int64_t taps = 0;
  bool is_indexed = false;
  const int32_t* listed = nullptr;  // [T, taps]: row(t, k), or -1; or the index [J, taps]
};

// `plan`: what kDepthwiseRowsPlan has made.
DepthwiseConvArgs ToDepthwiseConvArgs(const OpCall& call, const std::byte* plan);
const OpDefinition& DepthwiseConvOp();

// The rows that taps read, listed once per step for every kernel of the op.
extern const BatchPlan kDepthwiseRowsPlan;

// Requires f32 activations; makes the plan itself.
void DepthwiseConvReference(const OpCall& call, KernelContext& context);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_DEPTHWISE_CONV_DEPTHWISE_CONV_H_
