// File: cc/ops/attention/attention_pages.h
// Runs `attention` as kv_write and paged_attention over scratch pages: every request gets
// consecutive pages of 16 tokens in the workspace.
//
//   WORKSPACE | pages [NumPages, 2 * Hk * D * 16] | what paged_attention needs |
//   PLAN      | listed keys [N] | slot_mapping [N] | query_start [R + 1] | seq_lens [R] |
//             | block_table [R, stride] | its plan |
//
// The rows of the call are the tokens of the two ops.
//
// All layers of a step share one plan. The stride of block_table is chosen per step, so that only
// as much of the plan is written as the step's requests need.
#ifndef PAGEMILL_CC_OPS_ATTENTION_ATTENTION_PAGES_H_
#define PAGEMILL_CC_OPS_ATTENTION_ATTENTION_PAGES_H_

#include <cstdint>
#include <string_view>

#include "cc/device/capabilities.h"
#include "cc/ops/op.h"
#include "cc/tensor/dtype.h"

namespace pagemill::ops {

// The kernels that run a call, by name, and the type of the pages between them.
struct PageKernels {
  std::string_view write;   // of kv_write
  std::string_view attend;  // of paged_attention
  DType pages = DType::kF32;
};

bool SupportsPages(const PageKernels& kernels, const device::Capabilities& caps,
                   const OpCall& call);
// For a call of these (largest) shapes.
int64_t PagesWorkspaceBytes(const PageKernels& kernels, const OpCall& call, int32_t num_threads);
void RunOverPages(const PageKernels& kernels, const OpCall& call, KernelContext& context);

extern const BatchPlan kPagesPlan;  // shared by all kernels

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_ATTENTION_ATTENTION_PAGES_H_
