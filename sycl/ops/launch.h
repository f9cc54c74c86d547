// File: sycl/ops/launch.h
// How the ops of this tree turn a call into a launch.
//
//   LaunchItems(context, ActModule(x.dtype), "add_kernel", rows * width, AddParams{...});
#ifndef PAGEMILL_SYCL_OPS_LAUNCH_H_
#define PAGEMILL_SYCL_OPS_LAUNCH_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "cc/ops/kv_page.h"
#include "cc/ops/op.h"
#include "cc/tensor/tensor_view.h"
#include "sycl/device/sycl_stream.h"
#include "sycl/ops/kernel_modules.h"  // ActModule(), TokenModule()
#include "sycl/ops/operands.h"

namespace pagemill::sycl {

static_assert(kLanes == kSubGroupSize);

inline Rows RowsOf(const TensorView& view) { return {view.data, view.row_stride_bytes}; }

inline StepTokens StepTokensOf(const ops::BatchView& batch) {
  return {.query_start = batch.query_start,
          .seq_lens = batch.seq_lens,
          .block_table = batch.block_table,
          .table_stride = batch.block_table_stride,
          .num_requests = batch.num_requests,
          .block_size = batch.block_size,
          .recent_states = batch.recent_states};
}

// The types that kernels read; nothing for others.
inline std::optional<ElementType> FindElementType(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return ElementType::kF32;
    case DType::kBF16:
      return ElementType::kBF16;
    case DType::kF16:
      return ElementType::kF16;
    case DType::kI8:
      return ElementType::kI8;
    case DType::kF8E4M3:
      return ElementType::kF8E4M3;
    case DType::kQ4_0:
      return ElementType::kQ4_0;
    case DType::kQ4_1:
      return ElementType::kQ4_1;
    case DType::kQ5_0:
      return ElementType::kQ5_0;
    case DType::kQ8_0:
      return ElementType::kQ8_0;
    case DType::kQ4_K:
      return ElementType::kQ4_K;
    case DType::kQ5_K:
      return ElementType::kQ5_K;
    case DType::kQ6_K:
      return ElementType::kQ6_K;
    default:
      return std::nullopt;
  }
}

// `dtype` is one that kernels read.
inline ElementType ElementTypeOf(DType dtype) { return *FindElementType(dtype); }

// True for weights without parts: floats, and blocks of the GGUF formats.
inline bool IsPlainWeight(const TensorView& weight) {
  return weight.parts == nullptr && FindElementType(weight.dtype).has_value();
}

// An optional operand: null if it is missing.
inline const void* DataOf(const ops::OpCall& call, size_t input) {
  return input < call.inputs.size() && call.inputs[input].rank > 0 ? call.inputs[input].data
                                                                   : nullptr;
}

// `group_size` is a multiple of kLanes.
template <typename Params>
void LaunchGroups(ops::KernelContext& context, const KernelModule& module, const char* kernel,
                  int64_t groups, int32_t group_size, const Params& params) {
  LaunchKernel(
      *context.stream,
      {.module = module, .kernel = kernel, .groups = groups, .group_size = group_size}, params);
}

// At least `items` work-items.
template <typename Params>
void LaunchItems(ops::KernelContext& context, const KernelModule& module, const char* kernel,
                 int64_t items, const Params& params) {
  constexpr int32_t kGroupSize = 128;
  LaunchGroups(context, module, kernel, (items + kGroupSize - 1) / kGroupSize, kGroupSize, params);
}

// `Kernel::supports` of kernels that run every call.
inline bool Always(const device::Capabilities&, const ops::OpCall&) { return true; }

// `Kernel::supports` of kernels whose input `kCache` is the KV cache: all types without int4 rows.
template <size_t kCache>
bool HasCacheType(const device::Capabilities&, const ops::OpCall& call) {
  return !ops::HasInt4Rows(call.inputs[kCache].dtype);
}

// A kernel of this tree. The CPU's capabilities do not matter.
constexpr ops::Kernel SyclKernel(std::string_view op,
                                 void (*run)(const ops::OpCall&, ops::KernelContext&),
                                 bool (*supports)(const device::Capabilities&,
                                                  const ops::OpCall&) = Always) {
  return {.op = op, .name = "sycl", .priority = 10, .supports = supports, .run = run};
}

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_LAUNCH_H_
