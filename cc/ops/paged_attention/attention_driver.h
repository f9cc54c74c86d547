// File: cc/ops/paged_attention/attention_driver.h
// Runs an AttentionKernel over a call of `paged_attention`: cuts the batch into tiles and shares
// them among the threads.
//
// A tile is up to 48 query rows of one KV head of one request. When there are many, each is
// computed by one thread, split after split. When there are few (a long context decoded alone), the
// splits of a tile are shared, too, in waves that fit the workspace, and merged in order.
//
// Where the batch says that its requests have leading blocks in common, the splits that these hold
// are computed first, in tiles of rows of several requests; each row then goes on from there with
// its own splits. Splits are merged in ascending order either way, so the bits are the same.
#ifndef PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_DRIVER_H_
#define PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_DRIVER_H_

#include <cstdint>

#include "cc/ops/op.h"
#include "cc/ops/paged_attention/attention_kernel.h"
#include "cc/ops/paged_attention/paged_attention.h"

namespace pagemill::ops {

// Reads the plan that kAttentionPlan makes.
void RunAttention(const AttentionKernels& kernels, const OpCall& call, KernelContext& context);

extern const BatchPlan kAttentionPlan;  // attention_tile_list.h

// For any kernel and any batch of at most q.shape[0] tokens.
int64_t AttentionWorkspaceBytes(const OpCall& call, int32_t num_threads);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_DRIVER_H_
