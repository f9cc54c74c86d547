// File: cc/ops/latent_write/latent_write.h
// Stores the latents of the step's tokens for multi-head latent attention (arXiv 2405.04434, 2.1):
// one vector per token for all heads, from which keys and values are projected, and one rotated
// key.
//
//   inputs   latent  act [T, ...]  rows of R elements: the normalized, compressed keys and values
//            rope    act [T, ...]  rows of P elements: the rotated part of the keys; or missing (a
//                                  view of rank 0), P = 0
//            cache   f32 or bf16 [pages, block_size / m, R + P]: written, latent first; or
//                    f8_e4m3 [pages, block_size / m, bytes of a row] (latent_f8_row.h)
//   outputs  none
//   batch    slot_mapping, block_size (also needed by the check)
//   attributes  bf16_elements = 0: those at the end of a row that an f8_e4m3 cache has in bf16
//   aliasing none
//
// A bf16 cache stores the nearest value, ties to even; NaN stays NaN. So does an f8_e4m3 cache with
// its bf16_elements. Of the others each 128 have a scale, the smallest power of two from 2^-100 to
// 2^100 with which no magnitude is beyond 448, and x / scale becomes the nearest code, ties to
// even, or +-448 beyond that: up to 448 * 2^100, x is off by at most 1/16 of it, 2^-17 of the
// largest of the 128, or 2^-110. If one of the 128 is infinite or NaN, all of them become NaN. What
// lies between the parts of a row is not written.
//
// Tokens with a negative slot are not stored. If a row stands for m > 1 tokens (latent_cache.h),
// those at the end of m are stored alone. Two tokens of one step never have the same slot. Every
// kernel stores the same bits.
//
// Kernels: "portable", "reference".
#ifndef PAGEMILL_CC_OPS_LATENT_WRITE_LATENT_WRITE_H_
#define PAGEMILL_CC_OPS_LATENT_WRITE_LATENT_WRITE_H_

#include "cc/ops/op.h"

namespace pagemill::ops {

const OpDefinition& LatentWriteOp();

namespace latent_write {
void RunPortable(const OpCall& call, KernelContext& context);
void RunReference(const OpCall& call, KernelContext& context);
}  // namespace latent_write

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_LATENT_WRITE_LATENT_WRITE_H_
