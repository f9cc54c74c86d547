// File: cc/ops/linear/onednn/block_driver.h
// Runs a BlockLibrary over a call of `linear` with bf16 weights: rounds x in the workspace and
// distributes blocks of weight rows, and chunks of x if there are many, to the threads of our pool.
#ifndef PAGEMILL_CC_OPS_LINEAR_ONEDNN_BLOCK_DRIVER_H_
#define PAGEMILL_CC_OPS_LINEAR_ONEDNN_BLOCK_DRIVER_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "cc/device/thread_pool.h"
#include "cc/ops/kernel_support.h"
#include "cc/ops/linear/onednn/block_library.h"
#include "cc/ops/linear/packed_gemm.h"
#include "cc/ops/op.h"

namespace pagemill::ops::linear {

bool BlocksSupport(const BlockLibrary& library, const device::Capabilities& caps,
                   const OpCall& call);

// The functions of a WeightPacking: consecutive blocks. The division of W depends only on its
// shape.
int64_t BlocksBytes(const TensorView& weight);
void PackBlocks(const BlockLibrary& library, const TensorView& weight, std::byte* packed,
                device::ThreadPool& pool);

// `call` has packed weights.
void RunBlocks(const BlockLibrary& library, const OpCall& call, KernelContext& context);
int64_t BlocksWorkspaceBytes(const OpCall& call, int32_t num_threads);

// The kernel `name` over the library that kLibrary returns, always the same one, which must outlive
// the kernel.
template <const BlockLibrary& (*kLibrary)()>
Kernel BlockKernel(std::string_view name, int32_t priority) {
  static const WeightPacking packing = {
      .layout = kLibrary().layout,
      .inputs = kWeightInputs,
      .bytes = BlocksBytes,
      .pack = [](const TensorView& w, std::byte* packed, device::ThreadPool& pool) {
        PackBlocks(kLibrary(), w, packed, pool);
        return OkStatus();
      }};
  return {.op = "linear",
          .name = name,
          .priority = priority,
          .supports =
              [](const device::Capabilities& caps, const OpCall& call) {
                return HasF32Activations(call) && BlocksSupport(kLibrary(), caps, call);
              },
          .run = [](const OpCall& call,
                    KernelContext& context) { RunBlocks(kLibrary(), call, context); },
          .workspace_bytes = BlocksWorkspaceBytes,
          .activations = Precision::kBf16,
          .packing = &packing};
}

}  // namespace pagemill::ops::linear

#endif  // PAGEMILL_CC_OPS_LINEAR_ONEDNN_BLOCK_DRIVER_H_
