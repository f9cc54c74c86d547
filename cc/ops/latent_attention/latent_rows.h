// File: cc/ops/latent_attention/latent_rows.h
// A tile of rows of `latent_attention`, for each instruction set. Plain data and functions only:
// files compiled for wide instructions include this header (docs/build.md).
#ifndef PAGEMILL_CC_OPS_LATENT_ATTENTION_LATENT_ROWS_H_
#define PAGEMILL_CC_OPS_LATENT_ATTENTION_LATENT_ROWS_H_

#include <cstdint>

namespace pagemill::ops {

inline constexpr int kMaxLatentRows = 32;
inline constexpr int kLatentKeys = 32;  // that are computed together

// The sum of e^score of a row is sum 2^log2_max; 0 and -infinity if it sees nothing.
struct LatentTotal {
  float log2_max = 0;
  float sum = 0;
};

// Some queries of one request. Row r is head r % heads of token r / heads, counted from the
// request's first token of the step.
struct LatentRows {
  const float* q = nullptr;  // [tokens, heads, size], strides in floats
  int64_t q_stride = 0;
  const float* rope = nullptr;  // [tokens, heads, rope_size]
  int64_t rope_stride = 0;
  float* y = nullptr;  // [tokens, heads, size]
  int64_t y_stride = 0;
  int32_t heads = 0;
  int32_t size = 0;
  int32_t rope_size = 0;
  int32_t first_position = 0;  // of the request's first token of the step
  int32_t first_row = 0;
  int32_t rows = 0;      // at most kMaxLatentRows
  int32_t window = 0;    // tokens that a query sees; 0: all
  float log2_scale = 0;  // scale / ln 2: weights are powers of 2
  const void* cache = nullptr;
  int64_t page_stride_bytes = 0;
  int32_t block_size = 0;     // rows of the cache
  int32_t bf16_elements = 0;  // of a row of a cache in fp8
  float* decoded = nullptr;   // [kLatentKeys, size + rope_size] for such a cache: overwritten
  int32_t tokens_of_row = 1;  // 1 if there is a window
  const int32_t* block_table = nullptr;
  // Positions of the keys that all rows see, which then are of one token; null: all keys up to each
  // row's position.
  const int32_t* chosen = nullptr;
  int32_t num_chosen = 0;
  LatentTotal* totals = nullptr;  // [rows]: written if not null
};

struct LatentKernel {
  void (*f32)(const LatentRows& rows);  // by the type of the cache
  void (*bf16)(const LatentRows& rows);
  void (*f8)(const LatentRows& rows);
};

extern const LatentKernel kLatentPortable;
#if defined(__x86_64__)
extern const LatentKernel kLatentAvx2;
extern const LatentKernel kLatentAvx512;
#endif

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_LATENT_ATTENTION_LATENT_ROWS_H_
