// File: cc/ops/rotary_kv_write/rotary_kv_write.h
// Applies rotary position embedding to q and k, and stores k and v in the paged cache, in one pass
// over the step's tokens (fused from rotary + kv_write by a rewrite).
//
//   inputs   q  act [T, Hq, D];  k  act [T, Hk, D];  positions and inv_freq as in rotary.h
//            v  act [T, Hk, Dv];  cache as in kv_write.h: written
//   outputs  q, k  rotated, of the same shapes
//   attributes  those of rotary and of kv_write
//   batch    that of kv_write
//   aliasing output q may be input q, output k may be input k
//
// Result: the same bits as `rotary` followed by `kv_write` with the kernels of the same name: the
// output k is what is stored. Tokens with a negative slot are rotated and not stored.
//
// Kernels: "avx512", "avx2", "portable" (those of the two ops), "reference".
#ifndef PAGEMILL_CC_OPS_ROTARY_KV_WRITE_ROTARY_KV_WRITE_H_
#define PAGEMILL_CC_OPS_ROTARY_KV_WRITE_ROTARY_KV_WRITE_H_

#include "cc/ops/op.h"

namespace pagemill::ops {

const OpDefinition& RotaryKvWriteOp();

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_ROTARY_KV_WRITE_ROTARY_KV_WRITE_H_
