// File: cc/ops/select_tokens/token_scores.h
// Scores of consecutive tokens for one query of `select_tokens`, for each instruction set. Plain
// data and functions only: files compiled for wide instructions include this header
// (docs/build.md).
#ifndef PAGEMILL_CC_OPS_SELECT_TOKENS_TOKEN_SCORES_H_
#define PAGEMILL_CC_OPS_SELECT_TOKENS_TOKEN_SCORES_H_

#include <cstdint>

namespace pagemill::ops::select_tokens {

struct IndexQuery {
  const float* q = nullptr;        // [heads, size]
  const float* rope = nullptr;     // [heads, rope_size]
  const float* weights = nullptr;  // [heads]
  int32_t heads = 0;
  int32_t size = 0;
  int32_t rope_size = 0;
  const void* cache = nullptr;
  int64_t page_stride_bytes = 0;
  int32_t block_size = 0;  // rows
  const int32_t* block_table = nullptr;
};

struct ScoreKernel {
  // Scores of the tokens [begin, begin + count), by the type of the cache.
  void (*f32)(const IndexQuery& query, int32_t begin, int32_t count, float* scores);
  void (*bf16)(const IndexQuery& query, int32_t begin, int32_t count, float* scores);
};

extern const ScoreKernel kScorePortable;
#if defined(__x86_64__)
extern const ScoreKernel kScoreAvx2;
extern const ScoreKernel kScoreAvx512;
#endif

}  // namespace pagemill::ops::select_tokens

#endif  // PAGEMILL_CC_OPS_SELECT_TOKENS_TOKEN_SCORES_H_
