// File: cc/ops/attention/attention_pages.h
// A call of `attention` as a kv_write and a paged_attention over scratch pages: every request gets
// consecutive f32 pages of 16 tokens in the workspace.
//
//   WORKSPACE | pages [NumPages, 2 * Hk * D * 16] | what paged_attention needs |
//   PLAN      | slot_mapping [T] | seq_lens [R] | block_table [R, stride] | its plan |
//
// The plan is made once per step for all layers alike; block_table has a stride of its own for each
// step, so that no more of the plan is written than the step's requests need.
#ifndef PAGEMILL_CC_OPS_ATTENTION_ATTENTION_PAGES_H_
#define PAGEMILL_CC_OPS_ATTENTION_ATTENTION_PAGES_H_

#include <cstdint>
#include <string_view>

#include "cc/ops/op.h"

namespace pagemill::ops {

// For a call of these (largest) shapes.
int64_t AttentionPagesBytes(const OpCall& call, int32_t num_threads);
extern const BatchPlan kAttentionPagesPlan;

// Runs the call with the kernels of this name of both ops.
void RunOverPages(std::string_view kernel, const OpCall& call, KernelContext& context);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_ATTENTION_ATTENTION_PAGES_H_
