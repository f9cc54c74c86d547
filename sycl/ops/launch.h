// File: sycl/ops/launch.h
// How the ops of this tree turn a call into a launch.
//
//   LaunchItems(context, ActModule(x.dtype), "add_kernel", rows * width, AddParams{...});
#ifndef PAGEMILL_SYCL_OPS_LAUNCH_H_
#define PAGEMILL_SYCL_OPS_LAUNCH_H_

#include <cstdint>

#include "cc/ops/op.h"
#include "cc/tensor/tensor_view.h"
#include "sycl/device/sycl_stream.h"
#include "sycl/ops/kernel_modules.h"  // ActModule(), TokenModule()
#include "sycl/ops/operands.h"

namespace pagemill::sycl {

inline Rows RowsOf(const TensorView& view) { return {view.data, view.row_stride_bytes}; }

inline bool IsElementType(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16 ||
         dtype == DType::kI8 || dtype == DType::kF8E4M3;
}
// `dtype` is one of them.
inline ElementType ElementTypeOf(DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return ElementType::kBF16;
    case DType::kF16:
      return ElementType::kF16;
    case DType::kI8:
      return ElementType::kI8;
    case DType::kF8E4M3:
      return ElementType::kF8E4M3;
    default:
      return ElementType::kF32;
  }
}

// True for weights that kernels read element by element.
inline bool IsPlainWeight(const TensorView& weight) {
  return weight.parts == nullptr && (weight.dtype == DType::kF32 || weight.dtype == DType::kBF16 ||
                                     weight.dtype == DType::kF16);
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

// A kernel of this tree. The CPU's capabilities do not matter.
constexpr ops::Kernel SyclKernel(std::string_view op,
                                 void (*run)(const ops::OpCall&, ops::KernelContext&),
                                 bool (*supports)(const device::Capabilities&,
                                                  const ops::OpCall&) = Always) {
  return {.op = op, .name = "sycl", .priority = 10, .supports = supports, .run = run};
}

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_LAUNCH_H_
