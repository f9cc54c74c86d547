// File: cc/ops/paged_attention/attention_driver.h
// Runs an AttentionKernel over a call of `paged_attention`: divides the batch into tiles and
// distributes them to the threads.
//
// A tile is up to 48 query rows of one KV head of one request. If there are many tiles, each is
// computed by one thread, split after split. If there are few (a single long context), threads also
// divide the splits of a tile, in waves that fit into the workspace, and merge them in order.
//
// If the requests of the batch share leading blocks (num_common_blocks), the splits of these blocks
// are computed first, in tiles of rows of several requests; each row then continues with its own
// splits. Splits are merged in ascending order either way, so the bits are the same.
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

// Enough for any kernel and any batch of at most q.shape[0] tokens.
int64_t AttentionWorkspaceBytes(const OpCall& call, int32_t num_threads);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_DRIVER_H_
