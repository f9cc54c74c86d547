// File: cuda/ops/paged_attention/flashinfer/flashinfer.h
// paged_attention by FlashInfer's kernels, on NVIDIA GPUs of compute capability 8.0 and more.
//
// Unlike the kernels of this tree it gives a row other bits in another batch: its planner divides
// keys to fill the GPU (plan.h), and states of chunks are rounded to bf16 before they are merged.
// Values of keys that a query does not see because they are later than it must be finite.
#ifndef PAGEMILL_CUDA_OPS_PAGED_ATTENTION_FLASHINFER_FLASHINFER_H_
#define PAGEMILL_CUDA_OPS_PAGED_ATTENTION_FLASHINFER_FLASHINFER_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "cc/device/capabilities.h"
#include "cc/ops/op.h"
#include "cc/ops/paged_attention/paged_attention.h"

namespace pagemill::gpu {

struct FlashInferShape;  // plan.h

FlashInferShape FlashInferShapeOf(const ops::PagedAttentionArgs& args);

// Elements from one row of bf16 to the next.
int64_t Bf16StrideOf(const TensorView& view);

// Activations and cache in bf16, keys in rows, a head_dim that has instances; causal attention
// without windows, soft caps, sinks, ALiBi, biases and growing scores.
bool SupportsFlashInfer(const device::Capabilities& caps, const ops::OpCall& call);

// True if the addresses and strides of the call are those that FlashInfer can read and write; they
// are not known when the kernel is chosen.
bool FlashInferReads(const ops::OpCall& call);

void RunFlashInfer(const ops::OpCall& call, ops::KernelContext& context);
// With the plan of this shape, which differs from the call's in `most_tokens`.
void RunFlashInferFor(const FlashInferShape& shape, const ops::OpCall& call,
                      ops::KernelContext& context);
int64_t FlashInferStateBytes(const ops::OpCall& call, int32_t num_threads);

int64_t FlashInferPlanBytes(const ops::OpCall& call);
void MakeFlashInferPlan(const ops::OpCall& call, std::span<std::byte> plan);
inline constexpr ops::BatchPlan kFlashInferPlan = {.bytes = FlashInferPlanBytes,
                                                   .make = MakeFlashInferPlan};

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_PAGED_ATTENTION_FLASHINFER_FLASHINFER_H_
