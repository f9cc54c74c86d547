// File: cc/program/device/tokens/op_calls.h
// Ops that an executor runs beside its program: their calls, over memory of the device, and
// kernels.
//
//   const OwnedCall call = {.inputs = {Words(counts, slots, columns), Numbers(ids, num_ids)}};
//   PAGEMILL_ASSIGN_OR_RETURN(const ops::Kernel* kernel,
//                             ChooseWithoutWorkspace(target, "count_tokens", call));
//   RunWithoutWorkspace(*kernel, call, *stream);
#ifndef PAGEMILL_CC_PROGRAM_DEVICE_TOKENS_OP_CALLS_H_
#define PAGEMILL_CC_PROGRAM_DEVICE_TOKENS_OP_CALLS_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "cc/base/status.h"
#include "cc/device/stream.h"
#include "cc/ops/op.h"
#include "cc/program/kernel_selection.h"
#include "cc/tensor/dtype.h"
#include "cc/tensor/tensor_view.h"

namespace pagemill::program {

inline int64_t AlignedTo64(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// Operands in a device's memory.
inline TensorView Numbers(const void* data, int64_t size) {
  return TensorView::Dense(const_cast<void*>(data), DType::kI32, {size});
}
inline TensorView Words(const void* data, int64_t rows, int64_t words) {
  return TensorView::Dense(const_cast<void*>(data), DType::kI32, {rows, words});
}

// A call with its operands, of an op without attributes.
struct OwnedCall {
  ops::OpCall call() const {
    static const ops::Attributes none;
    return {.inputs = inputs, .outputs = outputs, .attributes = &none};
  }
  std::vector<TensorView> inputs, outputs = {};
};

// The best kernel of the target for `call`. Errors of the op's check and of the op table.
inline StatusOr<const ops::Kernel*> ChooseFor(const Target& target, std::string_view op,
                                              const OwnedCall& call) {
  PAGEMILL_ASSIGN_OR_RETURN(const ops::OpDefinition* definition, ops::FindOp(target.ops, op));
  PAGEMILL_RETURN_IF_ERROR(definition->check(call.call()));
  return ops::ChooseKernel(*definition, target.capabilities, call.call());
}

inline int64_t WorkspaceBytes(const ops::Kernel& kernel, const OwnedCall& call) {
  if (kernel.workspace_bytes == nullptr) return 0;
  return kernel.workspace_bytes(call.call(), /*num_threads=*/1);
}

// As ChooseFor(), of an op whose kernels need no workspace.
inline StatusOr<const ops::Kernel*> ChooseWithoutWorkspace(const Target& target,
                                                           std::string_view op,
                                                           const OwnedCall& call) {
  PAGEMILL_ASSIGN_OR_RETURN(const ops::Kernel* kernel, ChooseFor(target, op, call));
  PAGEMILL_CHECK(WorkspaceBytes(*kernel, call) == 0);
  return kernel;
}

inline void RunWithoutWorkspace(const ops::Kernel& kernel, const OwnedCall& call,
                                device::Stream& stream) {
  ops::KernelContext context = {.stream = &stream};
  kernel.run(call.call(), context);
}

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_DEVICE_TOKENS_OP_CALLS_H_
