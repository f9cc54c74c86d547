#ifndef PAGEMILL_SYCL_OPS_SELECT_TOKENS_SELECT_TOKENS_PARAMS_H_
#define PAGEMILL_SYCL_OPS_SELECT_TOKENS_SELECT_TOKENS_PARAMS_H_

#include "sycl/ops/operands.h"

namespace pagemill::sycl {

// Work-items of a group, and the rows that it scores at a time.
inline constexpr int32_t kSelectGroupSize = 128;

// Some tokens of a step.
struct SelectTokensParams {
  Rows q, rope;   // of tokens: a row of index_size, and of rope_size, for each head
  Rows weights;   // f32 [tokens, heads]
  Rows cache;     // pages of [rows_of_page, index_size + rope_size]
  Rows chosen;    // i32 [tokens, choices]
  ElementType type = ElementType::kF32;  // of the cache
  StepTokens batch{};
  int32_t heads = 0, index_size = 0, rope_size = 0, choices = 0;
  int32_t rows_of_page = 0;
  int32_t tokens_of_row = 1;  // of the cache
  int64_t first_token = 0;
  uint32_t* keys = nullptr;      // [tokens, capacity]; so are positions
  int32_t* positions = nullptr;
  int32_t capacity = 0;
};

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_SELECT_TOKENS_SELECT_TOKENS_PARAMS_H_
