// File: cuda/ops/latent_attention/tensor_cores.h
// latent_attention on tensor cores: weights of keys are rounded to bf16, sums are f32.
//
// The heads of a token read the same latents, and are rows of one tile, with as many tokens as fit.
// The plan is paged_attention's (attention_plan.h), for one KV head of all query heads: long
// contexts of few rows are divided, and no division changes bits.
#ifndef PAGEMILL_CUDA_OPS_LATENT_ATTENTION_TENSOR_CORES_H_
#define PAGEMILL_CUDA_OPS_LATENT_ATTENTION_TENSOR_CORES_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "cc/device/capabilities.h"
#include "cc/ops/op.h"

namespace pagemill::gpu {

// GPUs with the instructions; activations and caches in bf16; latents of a multiple of 16 elements,
// up to 512, with a rotated part that makes keys a multiple of 16, too; none that are chosen,
// windows, sums, or rows for several tokens; and the shared memory.
bool SupportsLatentsOnTensorCores(const device::Capabilities& caps, const ops::OpCall& call);

// Blocks of the cache begin at multiples of 16 bytes. The context has a plan, and a workspace of
// LatentStateBytes().
void AttendLatentsOnTensorCores(const ops::OpCall& call, ops::KernelContext& context);

int64_t LatentStateBytes(const ops::OpCall& call, int32_t num_threads);
int64_t LatentPlanBytes(const ops::OpCall& call);
void MakeLatentPlan(const ops::OpCall& call, std::span<std::byte> plan);

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_LATENT_ATTENTION_TENSOR_CORES_H_
