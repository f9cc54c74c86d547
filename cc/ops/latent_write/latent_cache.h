// File: cc/ops/latent_write/latent_cache.h
// Checks the layout of a latent cache: f32 or bf16 [blocks, block_size, width], a row for each
// token of a block, the latent before the rotated key.
//
//   RequireLatentCache(call, /*input=*/2, &check);   // in the op's check; binds 'S' and 'W'
#ifndef PAGEMILL_CC_OPS_LATENT_WRITE_LATENT_CACHE_H_
#define PAGEMILL_CC_OPS_LATENT_WRITE_LATENT_CACHE_H_

#include <cstddef>
#include <string>

#include "cc/ops/op.h"
#include "cc/ops/operand_check.h"

namespace pagemill::ops {

inline void RequireLatentCache(const OpCall& call, size_t input, OperandCheck* check) {
  const TensorView& cache = call.inputs[input];
  check->Require(cache.dtype == DType::kF32 || cache.dtype == DType::kBF16,
                 "a latent cache must be f32 or bf16 (kv_cache_dtype), got " +
                     std::string(Info(cache.dtype).name));
  check->Input(input, "cache", cache.dtype, "B,S,W");
  check->Require(call.batch != nullptr && call.batch->block_size == check->Dim('S'),
                 "blocks of the cache must have as many rows as the batch's block_size");
}

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_LATENT_WRITE_LATENT_CACHE_H_
