// File: cc/ops/moe_route/moe_route.h
// The router of a mixture-of-experts layer: chooses the experts of a token and their weights from
// its logits.
//
//   inputs   logits   f32 [N, E]
//            bias     f32 [E], or missing (a view of rank 0): added to scores for the choice only
//            factors  f32 [E], missing or left out: of the weights of each expert
//            token_ids  i32 [N], and
//            table    f32 [V, k], missing or left out: the experts of each token id, whole numbers
//   outputs  ids      i32 [N, k]   distinct experts, the best first, counted from `first`
//            weights  f32 [N, k]
//   attributes  choices        k, at most group_choices * E / groups
//               scoring        0 softmax over all experts, 1 sigmoid, 2 SparseMixer, 3 the square
//                              root of ln(1 + e^logit)
//               tolerance=0    of SparseMixer, at least 0
//               logits_bias=0  1: the bias is added to logits
//               renormalize=0  1: weights are divided by their sum (plus 1e-20)
//               scale=1        factor of the final weights
//               groups=1       groups of neighbouring experts, of equal size
//               group_choices=groups  groups that experts are chosen from
//               group_top=1    the key of a group is the sum of this many best experts: 1 or 2
//               first=0        the expert whose id is 0; those before it have negative ids
//   aliasing    none
//
//   score[e] = scoring(logits)[e]
//   key[e] = logits[e], or score[e] + bias[e] if there is a bias, or logits[e] + bias[e]
//   ids = the k largest keys among the experts of the best groups
//   weights[j] = score[ids[j]] (/ (sum_j score[ids[j]] + 1e-20)) * scale (* factors[ids[j]])
//
// With a table the experts of a row are table[token_ids[n]], whatever its logits; then there is no
// bias, there are no groups, and the scoring is not SparseMixer. If one of them is not in [0, E),
// it is 0, and all weights of the row are NaN.
//
// SparseMixer, without bias and groups, weighs each choice among the experts that are left and near
// it: with m the logit of choice j, an expert e that is none of the choices before j counts if
// m - logits[e] <= tolerance max(|logits[e]|, m), and score[ids[j]] is 1 / sum_e exp(logits[e] - m)
// over those that count; NaN if m is infinite.
//
// Without a bias, logits are compared instead of scores, which have the same order, so that scores
// that round to the same number are not ties. The key of a group sums score + bias of its best
// experts. Among equal keys of experts or groups the lower index wins. Softmax over the chosen
// experts alone (Mixtral, gpt-oss) is renormalize = 1.
//
// A NaN logit counts as -infinity for the choice, so ids are distinct and always name experts. If a
// logit is NaN, or the largest is infinite, all weights of the row are NaN.
//
// A rank that has experts [first, first + count) counts from its first: the ids of all others are
// outside of its stacks, and `grouped_linear` computes nothing for them.
//
// Source: "DeepSeek-V3 Technical Report", section 2.1.2 (bias and groups), and the routers of
// transformers for Qwen3-MoE, Mixtral, DeepSeek-V2, DeepSeek-V4 (square roots, tables), Gemma 4
// (factors) and PhiMoE (SparseMixer, arXiv 2409.12136).
//
// Error bound: |weights - exact| <= 4e-6 |exact| + 1e-30 for the ids that were chosen: the error of
// Exp() is 2e-7 (cc/ops/exp.h), that of a sum of E <= 1024 terms in 16 chains at most 64 * 2^-24 =
// 3.9e-6, typically a tenth of it. With a bias, keys that are closer than that may be chosen in
// another order. Kernels: "portable", "reference" (computes in double).
#ifndef PAGEMILL_CC_OPS_MOE_ROUTE_MOE_ROUTE_H_
#define PAGEMILL_CC_OPS_MOE_ROUTE_MOE_ROUTE_H_

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "cc/ops/op.h"

namespace pagemill::ops {

const OpDefinition& MoeRouteOp();

namespace moe_route {

enum class Scoring { kSoftmax = 0, kSigmoid = 1, kSparseMixer = 2, kSqrtSoftplus = 3 };

struct Args {
  TensorView logits, ids, weights;
  const float* bias;     // [experts] or null
  const float* factors;  // [experts] or null
  TensorView token_ids;  // with `table`
  TensorView table;      // of rank 0 if there is none
  int64_t experts;
  int64_t choices;
  Scoring scoring;
  float tolerance;  // of kSparseMixer
  bool logits_bias;
  bool renormalize;
  float scale;
  int64_t groups;
  int64_t group_choices;
  int64_t group_top;
  int32_t first;

  // Whether an expert counts beside a choice of SparseMixer.
  bool IsNear(float choice, float logit) const {
    return !(choice - logit > tolerance * std::max(std::abs(logit), choice));
  }
  bool has_table() const { return table.rank > 0; }
  // Stores the experts of row `row` by the table; false if they are none of the experts.
  bool LookUp(int64_t row, int32_t* ids) const {
    const float* const listed = table.Row<const float>(*token_ids.Row<const int32_t>(row));
    bool known = true;
    for (int64_t j = 0; j < choices; ++j) {
      const bool exists = listed[j] > -1 && listed[j] < static_cast<float>(experts);
      ids[j] = exists ? static_cast<int32_t>(listed[j]) : 0;
      known &= exists;
    }
    return known;
  }
  int64_t GroupSize() const { return experts / groups; }
  float FactorOf(int64_t expert) const {
    return factors == nullptr ? scale : scale * factors[expert];
  }
};

Args ToArgs(const OpCall& call);

void RunPortable(const OpCall& call, KernelContext& context);
int64_t PortableWorkspaceBytes(const OpCall& call, int32_t num_threads);
void RunReference(const OpCall& call, KernelContext& context);
int64_t ReferenceWorkspaceBytes(const OpCall& call, int32_t num_threads);

}  // namespace moe_route

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_MOE_ROUTE_MOE_ROUTE_H_
