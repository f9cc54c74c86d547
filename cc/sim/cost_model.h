// File: cc/sim/cost_model.h
// The time that a device takes for a step, by the roofline model (S. Williams, A. Waterman, D.
// Patterson, CACM 52(4), 2009). A step takes the longer of computing and moving bytes, plus a fixed
// overhead.
//
//   CostModel cost(device, shape);
//   StepCost step = cost.Of(plan);          // step.total_ns
//
// With T tokens in the step, R of which produce a row of logits, and per request n tokens behind a
// context of c tokens (symbols as in ModelShape):
//
//   weights     W = layers (2 hidden heads head_size + 2 hidden kv_heads head_size
//                           + mlp_matrices hidden intermediate)                    q, o; k, v; MLP
//   compute     2 T W + 2 R hidden vocab                                           matrix multiply
//               + 4 layers heads head_size sum(n c + n (n + 1) / 2)                scores, values
//   bytes       weight_bytes                                                       once a step
//               + kv_token_bytes sum((c + n) + n)                                  read, written
//   kv_token_bytes = 2 layers kv_heads head_size kv_bits / 8
//
// Counting 2 operations for a multiply-add and the attention's two products as above follows
// J. Kaplan et al., "Scaling Laws for Neural Language Models" (arXiv:2001.08361), section 2.1, with
// the causal half counted exactly. Activations, embedding rows, norms and sampling are not counted:
// they are below a percent of the weights' traffic. Kernels reach a share of the peak, which the
// device's two efficiencies state.
//
// Integer arithmetic only, so that virtual time is the same on every machine. Thread safety:
// immutable.
#ifndef PAGEMILL_CC_SIM_COST_MODEL_H_
#define PAGEMILL_CC_SIM_COST_MODEL_H_

#include <cstdint>

#include "cc/base/status.h"
#include "cc/step/step_plan.h"

namespace pagemill::sim {

struct DeviceSpec {
  int64_t peak_flops = 0;       // operations per second, dense, in the type of the computation
  int64_t bandwidth_bytes = 0;  // of its memory, per second
  int32_t compute_efficiency_permille = 1000;    // of the peak that matrix multiplies reach
  int32_t bandwidth_efficiency_permille = 1000;  // of the bandwidth that reading weights reaches
  int64_t step_overhead_ns = 0;                  // per step: launches, sampling, bookkeeping

  // kInvalidArgument names the field, its value and its range.
  Status Validate() const;
};

struct ModelShape {
  int32_t num_layers = 0;
  int32_t hidden_size = 0;
  int32_t num_heads = 0;
  int32_t num_kv_heads = 0;
  int32_t head_size = 0;
  int32_t intermediate_size = 0;
  int32_t num_mlp_matrices = 3;  // 3 with a gate (SwiGLU), 2 without
  int32_t vocab_size = 0;
  int64_t weight_bytes = 0;  // read in each step; 0 = 2 bytes for each weight
  int32_t kv_bits = 16;      // of one element of a key or value

  int64_t num_weights() const;  // in matrices: W above and the output embedding
  int64_t kv_token_bytes() const;
  Status Validate() const;
};

struct StepCost {
  int64_t flops = 0;
  int64_t bytes = 0;
  int64_t compute_ns = 0;
  int64_t memory_ns = 0;
  int64_t total_ns = 0;
};

class CostModel {
 public:
  // Both must be valid.
  CostModel(const DeviceSpec& device, const ModelShape& shape);

  StepCost Of(const step::StepPlan& plan) const;

 private:
  const DeviceSpec device_;
  const int64_t flops_per_token_;
  const int64_t flops_per_row_;
  const int64_t flops_per_pair_;  // per token and token of its context
  const int64_t weight_bytes_;
  const int64_t kv_token_bytes_;
};

}  // namespace pagemill::sim

#endif  // PAGEMILL_CC_SIM_COST_MODEL_H_
