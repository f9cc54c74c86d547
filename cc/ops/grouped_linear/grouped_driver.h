// File: cc/ops/grouped_linear/grouped_driver.h
// Runs the kernels of `linear` over the rows of each expert. Rows are sorted by expert and prepared
// in chunks; then (expert, output columns) are one list that the threads share, so that all of them
// work even if every expert has a single row. Kernels read and write the rows of a chunk in place
// if they are evenly spaced in x or y, as one or two rows always are, else through a block of rows
// that stays in cache.
#ifndef PAGEMILL_CC_OPS_GROUPED_LINEAR_GROUPED_DRIVER_H_
#define PAGEMILL_CC_OPS_GROUPED_LINEAR_GROUPED_DRIVER_H_

#include <cstddef>
#include <cstdint>

#include "cc/device/thread_pool.h"
#include "cc/ops/linear/packed_gemm_kernels.h"
#include "cc/ops/op.h"

namespace pagemill::ops::grouped_linear {

// The stacks of `call` are in the layout that the kernels read: packed or as stored.
void RunPacked(const linear::PackedGemm& kernels, const OpCall& call, KernelContext& context);
int64_t PackedWorkspaceBytes(const linear::PackedGemm& kernels, const OpCall& call,
                             int32_t num_threads);

// The functions of a WeightPacking.
int64_t PackedStackBytes(const linear::PackedGemm& kernels, const TensorView& stack);
Status PackStack(const linear::PackedGemm& kernels, const TensorView& stack, std::byte* packed,
                 device::ThreadPool& pool);

}  // namespace pagemill::ops::grouped_linear

#endif  // PAGEMILL_CC_OPS_GROUPED_LINEAR_GROUPED_DRIVER_H_
