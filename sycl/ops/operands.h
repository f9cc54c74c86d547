// File: sycl/ops/operands.h
// Operands of kernels as plain data. Included by the host and by the source text of kernels.
#ifndef PAGEMILL_SYCL_OPS_OPERANDS_H_
#define PAGEMILL_SYCL_OPS_OPERANDS_H_

#include <cstdint>

namespace pagemill::sycl {

// Work-items of a sub-group.
inline constexpr int32_t kLanes = 16;

// A tensor's rows (dimension 0), as addresses of the device.
struct Rows {
  void* data = nullptr;
  int64_t stride_bytes = 0;

#ifdef SYCL_LANGUAGE_VERSION
  template <typename T>
  T* Row(int64_t i) const {
    return reinterpret_cast<T*>(static_cast<char*>(data) + i * stride_bytes);
  }
#endif
};

// The requests of a step and their tokens (cc/ops/batch_view.h), as addresses of the device.
struct StepTokens {
  const int32_t* query_start = nullptr;  // [num_requests + 1]
  const int32_t* seq_lens = nullptr;     // [num_requests]
  const int32_t* block_table = nullptr;  // [num_requests, table_stride]
  int64_t table_stride = 0;
  int32_t num_requests = 0;
  int32_t block_size = 0;     // tokens
  int32_t recent_states = 0;  // pages that a table of states begins with
};

// Types that a kernel tells apart when it runs: those of weights, caches and results. The type of
// activations is fixed when a kernel is compiled.
enum class ElementType : int32_t {
  kF32,
  kBF16,
  kF16,
  kI8,
  kF8E4M3,
  kU4,  // packed integers (sycl/ops/weight_matrices.h); so is kU8
  kU8,
  // GGUF blocks (sycl/ops/weights.h)
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ8_0,
  kQ4_K,
  kQ5_K,
  kQ6_K,
};

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_OPERANDS_H_
