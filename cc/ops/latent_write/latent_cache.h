// File: cc/ops/latent_write/latent_cache.h
// The layout of a latent cache: f32 or bf16 [blocks, block_size / m, width], a row for each token
// of a block (m = 1) or for each m tokens, the latent before the rotated key; or f8_e4m3 [blocks,
// block_size / m, bytes of a row] (latent_f8_row.h). The row of m tokens is written, and seen, from
// the last of them on.
//
//   RequireLatentCache(call, /*input=*/2, width, &check);  // in the op's check; binds 'S' and 'W'
//   const int32_t m = TokensOfRow(call, /*input=*/2);
#ifndef PAGEMILL_CC_OPS_LATENT_WRITE_LATENT_CACHE_H_
#define PAGEMILL_CC_OPS_LATENT_WRITE_LATENT_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "cc/ops/latent_write/latent_f8_row.h"
#include "cc/ops/op.h"
#include "cc/ops/operand_check.h"

namespace pagemill::ops {

// Attribute, 0 by default: elements at the end of a row that a cache in fp8 stores in bf16. Caches
// of other types ignore it.
inline constexpr std::string_view kBf16Elements = "bf16_elements";

// The row of a cache in fp8 whose rows have `width` elements.
inline LatentF8Row LatentF8RowOf(const OpCall& call, int64_t width) {
  const int64_t rest = call.attributes->GetInt(kBf16Elements, 0);
  return {.codes = width - rest, .rest = rest};
}

// Of rows of `width` elements.
inline void RequireLatentCache(const OpCall& call, size_t input, int64_t width,
                               OperandCheck* check) {
  const TensorView& cache = call.inputs[input];
  const bool is_f8 = cache.dtype == DType::kF8E4M3;
  check->Require(is_f8 || cache.dtype == DType::kF32 || cache.dtype == DType::kBF16,
                 "a latent cache must be f32, bf16 or fp8 (kv_cache_dtype), got " +
                     std::string(Info(cache.dtype).name));
  check->IntegerAttribute(kBf16Elements, /*fallback=*/0, 0, width);
  check->Input(input, "cache", cache.dtype, "B,S,W");
  if (!check->ok()) return;
  const int64_t size = is_f8 ? LatentF8RowOf(call, width).bytes() : width;
  check->Require(check->Dim('W') == size, "rows of the cache must have " + std::to_string(size) +
                                              (is_f8 ? " bytes" : " elements") + ", got " +
                                              std::to_string(check->Dim('W')));
  const int64_t rows = check->Dim('S');
  check->Require(call.batch != nullptr && rows > 0 && call.batch->block_size % rows == 0,
                 "the batch's block_size must be a multiple of the rows in a block of the cache");
}

// Tokens that a row of the cache stands for.
inline int32_t TokensOfRow(const OpCall& call, size_t input) {
  return call.batch->block_size / static_cast<int32_t>(call.inputs[input].shape[1]);
}

// Rows of the cache that the token at `position` sees.
inline int32_t VisibleRows(int32_t position, int32_t tokens_of_row) {
  return (position + 1) / tokens_of_row;
}

// Whether an optional operand is there.
inline bool HasInput(const OpCall& call, size_t input) {
  return call.inputs.size() > input && call.inputs[input].rank > 0;
}

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_LATENT_WRITE_LATENT_CACHE_H_
