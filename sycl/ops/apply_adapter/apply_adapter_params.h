#ifndef PAGEMILL_SYCL_OPS_APPLY_ADAPTER_APPLY_ADAPTER_PARAMS_H_
#define PAGEMILL_SYCL_OPS_APPLY_ADAPTER_APPLY_ADAPTER_PARAMS_H_

#include "cc/ops/apply_adapter/adapter_matrices.h"
#include "sycl/ops/operands.h"

namespace pagemill::sycl {

inline constexpr int32_t kAdapterGroupSize = 128;

// Rows of x, y or z, which are choices of tokens.
struct ChoiceRows {
  Rows tokens;
  int64_t step = 0;  // elements from one choice to the next; 0: they share one row
};

// Some rows of a layer.
struct ApplyAdapterParams {
  const ops::AdapterMatrices* table = nullptr;  // entries of slots, or of experts of slots
  const int32_t* slots = nullptr;               // null: no row has an adapter
  const int32_t* rows = nullptr;                // null: token n has slots[n]
  const int32_t* experts = nullptr;             // of rows, or null
  int64_t choices = 1, num_experts = 1;
  ChoiceRows x;
  bool ids = false;  // x has ids
  ChoiceRows y, z;
  bool f32_result = false;  // otherwise y and z are activations
  float* low = nullptr;     // [count, kMaxAdapterRank]
  int64_t first = 0, count = 0;
  int64_t in = 0, out = 0;
};

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_APPLY_ADAPTER_APPLY_ADAPTER_PARAMS_H_
