// File: cc/ops/kv_write/kv_write.h
// Stores the step's keys and values in the paged cache (layout: docs/program_format.md).
//
//   inputs   k      act [T, Hk, D]
//            v      act [T, Hk, Dv]   1 <= Dv <= D: with zeros behind them
//            cache  [num_blocks, KvBlockElements()] (cc/ops/kv_page.h): f32, bf16, f8_e4m3, or,
//                   with scales, i8, u4 (int4) or k8v4 (keys as i8, values as u4); with int4
//                   rows D <= 512, and blocks of whole fours of tokens: written
//   outputs  none
//   batch    slot_mapping, block_size (also needed by the check)
//   attributes  k_scale, v_scale = 1 of an f8_e4m3 cache (cc/ops/kv_write/kv_scales.h);
//               keys_in_rows = 0 (cc/ops/kv_write/key_layout.h), always with int4 rows
//   aliasing none
//
// A bf16 cache stores the nearest value, ties to even; NaN stays NaN. An f8_e4m3 cache does so for
// x times the rounded 1 / scale; values beyond 448, infinities included, become 448 with their
// sign. Rows of int8, one for each token and head of K and of V, store scale = largest |x| / 127
// and x / scale rounded to the nearest whole number (ties to even), so that each element is off by
// at most half a scale. If all |x| are below 1e-30 the scale is 0; if any is infinite or NaN the
// scale is NaN, and so is the whole row. Rows of int4 do so for rotated x (int4_row.h), with
// scale = largest |x| / 15 and codes x / (2 scale) + 7.5 rounded, so that each rotated element is
// off by at most a scale; behind a narrow v stand results of rounding instead of zeros. Tokens with
// a negative slot are not stored. Two tokens of one step never have the same slot. Every kernel
// stores the same bits.
//
// Kernels: "avx512", "avx2", "portable", "reference"; keys in rows: "reference".
#ifndef PAGEMILL_CC_OPS_KV_WRITE_KV_WRITE_H_
#define PAGEMILL_CC_OPS_KV_WRITE_KV_WRITE_H_

#include "cc/ops/kv_write/key_layout.h"
#include "cc/ops/kv_write/kv_scales.h"
#include "cc/ops/op.h"
#include "cc/ops/widened/widened.h"

namespace pagemill::ops {

struct KvWriteArgs {
  TensorView k, v, cache;
  const BatchView* batch = nullptr;
  KvScales scales;
  KeyStrides key;
};

KvWriteArgs ToKvWriteArgs(const OpCall& call);
const OpDefinition& KvWriteOp();

void KvWriteReference(const OpCall& call, KernelContext& context);
inline constexpr F32Kernel kKvWriteReference{.act_inputs = 0b11, .run = KvWriteReference};

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_KV_WRITE_KV_WRITE_H_
