// File: cuda/ops/gated_delta/delta_chunks.h
// gated_delta for requests with many tokens in a step, in chunks of tokens on tensor cores (the WY
// representation: Yang, Kautz and Hatamizadeh, "Gated Delta Networks", 2024).
//
// Sums are f32. Rows of q, k and v are multiplied as they are, in bf16; what is computed from them
// is the sum of two bf16 numbers, which leave 2^-17 of it at most. Bits depend on where chunks
// begin: at the first token of a run between two states, then after each kChunkTokens.
#ifndef PAGEMILL_CUDA_OPS_GATED_DELTA_DELTA_CHUNKS_H_
#define PAGEMILL_CUDA_OPS_GATED_DELTA_DELTA_CHUNKS_H_

#include <cstdint>

#include "cc/device/capabilities.h"
#include "cc/ops/gated_delta/gated_delta.h"
#include "cc/ops/op.h"

namespace pagemill::gpu {

// Requests with fewer tokens in a step are better off token by token.
inline constexpr int32_t kFewestChunkTokens = 16;

// GPUs with the instructions and the shared memory; activations in bf16, one decay for a head, keys
// of a multiple of 16 elements up to 128.
bool SupportsDeltaChunks(const device::Capabilities& caps, const ops::OpCall& call);

// Computes the requests of at least `fewest_tokens` tokens in the step.
void RunDeltaChunks(const ops::GatedDeltaArgs& args, int32_t fewest_tokens,
                    ops::KernelContext& context);

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_GATED_DELTA_DELTA_CHUNKS_H_
