// File: cuda/ops/paged_attention/flashinfer/hopper.h
// paged_attention with FlashInfer's kernel for prompts on GPUs of compute capability 9.0, and its
// other kernel (flashinfer.h) for all other requests of a step and for steps without prompts.
#ifndef PAGEMILL_CUDA_OPS_PAGED_ATTENTION_FLASHINFER_HOPPER_H_
#define PAGEMILL_CUDA_OPS_PAGED_ATTENTION_FLASHINFER_HOPPER_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "cc/device/capabilities.h"
#include "cc/ops/op.h"

namespace pagemill::gpu {

// Calls that SupportsFlashInfer(), on such a GPU and of a head_dim that has an instance.
bool SupportsFlashInferHopper(const device::Capabilities& caps, const ops::OpCall& call);

// FlashInferReads() the call. The workspace has FlashInferStateBytes().
void RunFlashInferHopper(const ops::OpCall& call, ops::KernelContext& context);

int64_t FlashInferHopperPlanBytes(const ops::OpCall& call);
void MakeFlashInferHopperPlan(const ops::OpCall& call, std::span<std::byte> plan);
inline constexpr ops::BatchPlan kFlashInferHopperPlan = {.bytes = FlashInferHopperPlanBytes,
                                                         .make = MakeFlashInferHopperPlan};

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_PAGED_ATTENTION_FLASHINFER_HOPPER_H_
