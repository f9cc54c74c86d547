// File: cc/ops/paged_attention/paged_attention.h
// Attention of the step's queries over each request's cached context: prefill, decode and any mix
// of them in one call.
//
//   inputs   q      act [T, Hq, D]   1 <= D <= 512
//            cache  [num_blocks, KvBlockElements()] (cc/ops/kv_page.h), of a type of kv_write, in
//                   which the step's own keys and values have been stored; Hq is a multiple of Hk
//            sinks  f32 [Hq], optional: a logit per head that joins the softmax's denominator
//            slopes f32 [Hq], optional: ALiBi
//            biases f32 [Hq, 2 * reach + 1], optional: by the distance from a query to a key
//            key_ranges i32 [T, 2], optional, of kernels of the CPU: the first key that a query
//                   sees and the end of its keys, instead of what attributes say about them;
//                   neither is before that of an earlier token of the request. Plans read it, so
//                   it is not a value of a program: `attention` passes it, and biases of each
//                   query, of columns and of each key, and the attribute grid_columns, too.
//   outputs  y      act [T, Hq, D]
//   batch    query_start, seq_lens, block_table, block_size (also needed by the check); item_ends
//            and encoder_ends if the attribute of this name is not 0
//   attributes  scale > 0; window = 0 (none); chunked = 0, 1 only with a window and causal = 1;
//               causal = 1; encoder_ends = 0, 1 or 2 only with causal = 1 and without a window;
//               item_ends = 0, 1 only with causal = 1, without chunked and encoder_ends;
//               soft_cap = 0 (none), else kMinSoftCap to kMaxSoftCap;
//               grows_from = 0 (nothing grows), else a position of at least 2;
//               k_scale, v_scale = 1 of an f8_e4m3 cache (cc/ops/kv_write/kv_scales.h);
//               keys_in_rows = 0 (cc/ops/kv_write/key_layout.h)
//   aliasing    none
//
// A query at position p sees keys (p - window, p], from 0 without a window; with causal = 0 keys
// (p - window, p + window) of seq_len, without a window all; with chunked = 1 the window begins
// anew at each multiple of it: keys [floor(p / window) window, p]. The first tokens of a request,
// e = batch.encoder_ends[t] for each of its tokens t, may stand for an encoder's rows, and the
// attention to them and to the others are two calls: with encoder_ends = 1 a query sees
// [0, min(p + 1, e)), and with encoder_ends = 2, if p >= e, [e, p], otherwise [0, p]. With
// item_ends = 1 the query of token t also sees keys behind its own, those in
// front of batch.item_ends[t]. Scores are q k^T scale + bias[reach + d], with d = position of the
// key - position of the query, from -reach to reach, then soft_cap tanh(score / soft_cap), then, of
// a query at p > grows_from, score ln p / ln grows_from, as in Grok-2, then score + slope d.
// Weights are e^score over the sum of those of the visible keys, to which e^sink is added. Head h
// of q reads head h / (Hq / Hk) of the cache. Slots that a query does not see may hold anything,
// NaN included, and blocks that no query of the request sees are not read (their entries in the
// block table may be anything).
//
// Result: the bits of one query's output depend on its q, its position and the keys and values it
// sees: not on the other queries and requests of the call, on how the prompt was divided into
// steps, or on threads. README.md explains how.
//
// Error bound: |y - exact| <= 4e-6 (1 + max |score|) max |v| over the visible keys, on the cache's
// values as stored, times their scales: a score carries relative errors of about sqrt(D) 2^-24 of
// its largest partial sum, and the softmax turns an absolute error of a score into a relative error
// of its weight.
//
// Kernels of Precision::kBf16 round q to bf16 (nearest, ties to even) and compute on the rounded
// queries; the relative error of each weight 2^(score - max) is then at most eta = 2^-8 (rounded to
// bf16) + 9e-5 (the polynomial). Weights are divided by the sum of the rounded ones, so y moves by
// at most eta / (1 - eta) sum w |v - y|, which adds kPagedAttentionRounding max |v| to the bound.
// If scores are equal nothing is rounded. Rounding q moves a score by up to 2^-8 scale sum |q k|.
//
// With an int8 cache such kernels round q to whole units of the largest |q| of the head over 32639,
// which moves a score by up to max |q| / 65278 scale sum |k|, and a weight times its value's scale
// to whole units of the largest of 256 keys over 65535. So y moves by at most 256 2^-17 max |v| +
// 1e-4 sum w |v - y|, less than kPagedAttentionRounding max |v|. The products of integers are
// summed exactly. With int4 rows all this holds of the rotated ones (int4_row.h): of q' = H q and
// the stored k', and of the stored v'. Results y = H y' sum errors of B elements of y', whose signs
// differ.
//
// Kernels: "amx_bf16" and "avx512_bf16" (bf16 and f8_e4m3 caches; kBf16), "amx_int8" and
// "avx512_vnni" (int8, int4 and k8v4 caches; kBf16), "avx512", "avx2", "portable" (block_size a
// multiple of 16), "reference" (any block size, in double, and keys in rows).
#ifndef PAGEMILL_CC_OPS_PAGED_ATTENTION_PAGED_ATTENTION_H_
#define PAGEMILL_CC_OPS_PAGED_ATTENTION_PAGED_ATTENTION_H_

#include "cc/ops/kv_write/key_layout.h"
#include "cc/ops/kv_write/kv_scales.h"
#include "cc/ops/op.h"
#include "cc/ops/paged_attention/distance_biases.h"

namespace pagemill::ops {

inline constexpr double kPagedAttentionRounding = 0.0041;

struct PagedAttentionArgs {
  TensorView q, cache, y;
  const float* sinks = nullptr;   // null: none
  const float* slopes = nullptr;  // null: none
  DistanceBiases biases = {};
  const int32_t* key_ranges = nullptr;  // null: none
  const BatchView* batch = nullptr;
  int32_t kv_heads = 0;
  float scale = 1;
  int32_t window = 0;
  bool chunked = false;
  bool causal = true;
  bool encoder_keys = false;  // encoder_ends = 1
  bool decoder_keys = false;  // encoder_ends = 2
  bool item_ends = false;  // those of the batch are read
  float soft_cap = 0;
  int32_t grows_from = 0;  // 0: nothing grows
  KvScales kv_scales = {};
  bool keys_in_rows = false;
};

PagedAttentionArgs ToPagedAttentionArgs(const OpCall& call);
// The attribute soft_cap of this op and of `attention`. In float, tanh is off by some 1e-7, so a
// cap multiplies that into each score: 0.01 at kMaxSoftCap. 1 / soft_cap must be finite.
inline constexpr double kMinSoftCap = 1e-5;
inline constexpr double kMaxSoftCap = 1e5;
void CheckSoftCap(const Attributes& attributes, OperandCheck& check);
// The biases of this op and of `attention`: of an odd number W of distances, for Q query heads, in
// the shape `pattern`.
inline constexpr int64_t kMaxBiases = 1 << 16;
void CheckBiases(size_t input, std::string_view name, std::string_view pattern,
                 OperandCheck& check);
// The table in an operand f32 [heads, 2 * reach + 1] or [rows, heads, 2 * reach + 1].
BiasTable BiasTableOf(const TensorView& view);
// What is added to the score of a query, the head `head` of row `query` at `position` of its
// request, with the key at position `key`.
double BiasOf(const DistanceBiases& biases, int64_t query, int64_t head, int64_t position,
              int64_t key);
const OpDefinition& PagedAttentionOp();

void PagedAttentionReference(const OpCall& call, KernelContext& context);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_PAGED_ATTENTION_PAGED_ATTENTION_H_
