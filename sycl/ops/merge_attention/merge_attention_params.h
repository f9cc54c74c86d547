#ifndef PAGEMILL_SYCL_OPS_MERGE_ATTENTION_MERGE_ATTENTION_PARAMS_H_
#define PAGEMILL_SYCL_OPS_MERGE_ATTENTION_MERGE_ATTENTION_PARAMS_H_

#include "sycl/ops/operands.h"

namespace pagemill::sycl {

inline constexpr int kMaxAttentionSets = 2;

struct MergeAttentionParams {
  Rows x[kMaxAttentionSets]{};   // [rows, heads, size]; without data: the set is missing
  Rows lse[kMaxAttentionSets]{}; // [rows, heads]
  const float* sinks = nullptr;  // [heads], or null
  Rows y;                        // [rows, heads, size]
  int64_t rows = 0, heads = 0, size = 0;
};

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_MERGE_ATTENTION_MERGE_ATTENTION_PARAMS_H_
