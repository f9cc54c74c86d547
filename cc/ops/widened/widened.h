// File: cc/ops/widened/widened.h
// The reference of an op whose activations may be bf16 or f16: it widens them to f32 in the
// workspace, runs the op's reference for f32, and rounds the results to the nearest value, ties to
// even. So the f32 reference of an op also defines its results in bf16 and f16.
//
//   constexpr F32Kernel kReference{.act_inputs = 0b11, .run = AddReference};
//   constexpr Kernel kKernels[] = {{"add", "portable", 10, OnEveryCpu, AddPortable},
//                                  WidenedReference<&kReference>("add")};
//
// With f32 activations nothing is widened, and the kernel needs only the workspace of the f32 one.
// Outputs may share memory with inputs as in the f32 kernel: inputs are read before outputs are
// written. Cost beyond that of the f32 kernel: two passes over the activations, on one thread.
#ifndef PAGEMILL_CC_OPS_WIDENED_WIDENED_H_
#define PAGEMILL_CC_OPS_WIDENED_WIDENED_H_

#include <cstdint>
#include <string_view>

#include "cc/ops/kernel_support.h"
#include "cc/ops/op.h"

namespace pagemill::ops {

// A kernel that computes on f32 activations.
struct F32Kernel {
  uint32_t act_inputs = 0;  // bit i: input i is of type `act`; weights and caches are not
  void (*run)(const OpCall& call, KernelContext& context) = nullptr;
  int64_t (*workspace_bytes)(const OpCall& call, int32_t num_threads) = nullptr;  // null: none
};

// Runs `kernel` on `call`, whose activations are f32, bf16 or f16, in a workspace of
// WidenedWorkspaceBytes() for its largest shapes.
void RunWidened(const F32Kernel& kernel, const OpCall& call, KernelContext& context);
int64_t WidenedWorkspaceBytes(const F32Kernel& kernel, const OpCall& call, int32_t num_threads);

// The entry "reference" of a kernel table.
template <const F32Kernel* kKernel>
constexpr Kernel WidenedReference(std::string_view op) {
  return {.op = op,
          .name = "reference",
          .priority = 0,
          .supports = InEveryType,
          .run = [](const OpCall& call,
                    KernelContext& context) { RunWidened(*kKernel, call, context); },
          .workspace_bytes =
              [](const OpCall& call, int32_t num_threads) {
                return WidenedWorkspaceBytes(*kKernel, call, num_threads);
              }};
}

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_WIDENED_WIDENED_H_
