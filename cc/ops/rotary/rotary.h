// File: cc/ops/rotary/rotary.h
// Rotary position embedding: rotates pairs of elements of every q and k head by an angle that grows
// with the token's position.
//
//   inputs   q  act [T, Hq, D];  k  act [T, Hk, D]
//            positions  i32 [T], or [T, N]
//            inv_freq   f32 [P], or [N, P]   P <= 256: rotates the 2 P elements of a head from
//                                            `begin` on
//   outputs  q, k                of the same shapes
//   attributes  interleaved = 0: pairs (i, i + P), else (2 i, 2 i + 1)
//               mscale = 1 scales cos and sin
//               begin = 0, at most D - 2 P
//               offset = 0, a whole number from -2^20 to 2^20: added to positions
//   aliasing    output q may be input q, output k may be input k
//
// The angle is float(position + offset) * inv_freq[i], rounded to fp32 as the reference models do;
// its sine and cosine are then accurate to 1.5e-7 for |position + offset| up to 2^20 (the reduction
// by pi / 2 is in double). Error bound: 4e-7 (|a| + |b|) mscale for the pair (a, b).
// Result: a token's bits depend on its q, k and position alone.
//
// Positions of N dimensions: the angle is the sum over d of float(position[d]) * inv_freq[d][i]. A
// model that rotates each pair by one dimension (M-RoPE's sections of pairs, or interleaved
// dimensions; the rows and columns of an image) has one nonzero frequency in each column of
// inv_freq. The other products are 0, so the angle is exactly that of one dimension, and equal
// positions in all dimensions give the bits of one dimension.
//
// Kernels: "avx512", "avx2", "portable", "reference". Cosines and sines are computed once per token
// and used for all heads.
#ifndef PAGEMILL_CC_OPS_ROTARY_ROTARY_H_
#define PAGEMILL_CC_OPS_ROTARY_ROTARY_H_

#include "cc/ops/op.h"
#include "cc/ops/rotary/rotary_token.h"
#include "cc/ops/widened/widened.h"

namespace pagemill::ops {

struct RotaryArgs {
  TensorView q, k, positions, inv_freq, q_out, k_out;
  bool interleaved = false;
  float mscale = 1;
  int32_t begin = 0;
  int32_t offset = 0;
};

RotaryArgs ToRotaryArgs(const OpCall& call);
const OpDefinition& RotaryOp();

// For fused ops: rotates tokens [begin, end) of a call with the kernel of an instruction set
// (rotary_token.h).
RotaryFrequencies FrequenciesOf(const RotaryArgs& args);
void RotateTokens(const RotaryKernel& kernel, const RotaryArgs& args,
                  const RotaryFrequencies& frequencies, int64_t begin, int64_t end);

void RotaryReference(const OpCall& call, KernelContext& context);
inline constexpr F32Kernel kRotaryReference{.act_inputs = 0b11, .run = RotaryReference};

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_ROTARY_ROTARY_H_
