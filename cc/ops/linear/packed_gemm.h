// File: cc/ops/linear/packed_gemm.h
// Runs a PackedGemm over a call of `linear`: prepares chunks of x in the workspace and distributes
// slices of weights, and chunks if there are many, to the threads.
#ifndef PAGEMILL_CC_OPS_LINEAR_PACKED_GEMM_H_
#define PAGEMILL_CC_OPS_LINEAR_PACKED_GEMM_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "cc/device/thread_pool.h"
#include "cc/ops/linear/linear.h"
#include "cc/ops/linear/packed_gemm_kernels.h"
#include "cc/ops/op.h"

namespace pagemill::ops::linear {

// The functions of a WeightPacking: consecutive slices. Packed integers become blocks; scales of
// scaled weights remain parts of the weight.
int64_t PackedBytes(const PackedGemm& kernels, const TensorView& weight);
Status PackWeight(const PackedGemm& kernels, const TensorView& weight, std::byte* packed,
                  device::ThreadPool& pool);
TensorView PackedView(const TensorView& weight);

// The scales of matrix `matrix` of a weight (0 unless it is a stack), if it has scales.
SliceScales ScalesOf(const TensorView& weight, int64_t matrix);

// The weights of `call` are in the layout that the kernels read: packed or as stored.
void RunPacked(const PackedGemm& kernels, const OpCall& call, KernelContext& context);
// Kernel::run_row_maxima: products of a slice are written to a buffer in L1 and reduced there.
void RunPackedMaxima(const PackedGemm& kernels, const OpCall& call, KernelContext& context,
                     int64_t columns, RowMaximum* maxima);
// Workspace of both.
int64_t PackedWorkspaceBytes(const PackedGemm& kernels, const OpCall& call, int32_t num_threads);

// The kernel `name` of a packed GEMM.
template <const PackedGemm* kKernels>
constexpr Kernel PackedKernel(std::string_view name, int32_t priority,
                              decltype(Kernel::supports) supports, Precision activations,
                              const WeightPacking* packing) {
  return {.op = "linear",
          .name = name,
          .priority = priority,
          .supports = supports,
          .run = [](const OpCall& call,
                    KernelContext& context) { RunPacked(*kKernels, call, context); },
          .workspace_bytes =
              [](const OpCall& call, int32_t num_threads) {
                return PackedWorkspaceBytes(*kKernels, call, num_threads);
              },
          .activations = activations,
          .packing = packing,
          .run_row_maxima =
              [](const OpCall& call, KernelContext& context, int64_t columns, RowMaximum* maxima) {
                RunPackedMaxima(*kKernels, call, context, columns, maxima);
              }};
}

template <const PackedGemm* kKernels>
constexpr WeightPacking PackingOfGemm(std::string_view layout) {
  return {.layout = layout,
          .inputs = kWeightInputs,
          .bytes = [](const TensorView& w) { return PackedBytes(*kKernels, w); },
          .pack = [](const TensorView& w, std::byte* packed,
                     device::ThreadPool& pool) { return PackWeight(*kKernels, w, packed, pool); },
          .view = PackedView};
}

}  // namespace pagemill::ops::linear

#endif  // PAGEMILL_CC_OPS_LINEAR_PACKED_GEMM_H_
