#ifndef PAGEMILL_SYCL_OPS_LATENT_ATTENTION_LATENT_ATTENTION_PARAMS_H_
#define PAGEMILL_SYCL_OPS_LATENT_ATTENTION_LATENT_ATTENTION_PARAMS_H_

#include "cc/ops/latent_write/latent_f8_row.h"
#include "sycl/ops/operands.h"

namespace pagemill::sycl {

// Work-items of a group, and the keys that it scores at a time.
inline constexpr int32_t kLatentGroupSize = 128;
inline constexpr int32_t kMaxLatentWidth = 1024;

struct LatentAttentionParams {
  Rows q, rope;    // of tokens: a row of latent_size, and of rope_size, for each head
  Rows cache;      // pages of rows_of_page rows of latent_size + rope_size
  Rows chosen{};   // [tokens, choices] rows of the cache; without data: all
  Rows y;          // of tokens: a row of latent_size for each head
  Rows lse{};      // [tokens, heads]; without data: it is not wanted
  ElementType type = ElementType::kF32;  // of the cache
  ops::LatentF8Row f8_row{};             // of a cache in fp8
  int64_t row_bytes = 0;                 // of the cache
  StepTokens batch{};
  int32_t heads = 0, latent_size = 0, rope_size = 0;
  int32_t rows_of_page = 0;
  int32_t tokens_of_row = 1;  // of the cache
  int32_t choices = 0;
  int32_t window = 0;  // 0: none
  float scale = 1;     // of scores
};

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_LATENT_ATTENTION_LATENT_ATTENTION_PARAMS_H_
