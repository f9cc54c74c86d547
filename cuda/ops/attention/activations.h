// File: cuda/ops/attention/activations.h
// Rows of activations whose type is looked up for each element, for kernels that load and store few:
// that costs less than a kernel for each type.
//
//   Launch(stream, shape, Attend<C>, ActivationsOf(q), ActivationsOf(y));
//   ...
//   y.Store(row, d, scale * q.Load(row, d));
#ifndef PAGEMILL_CUDA_OPS_ATTENTION_ACTIVATIONS_H_
#define PAGEMILL_CUDA_OPS_ATTENTION_ACTIVATIONS_H_

#include <cstdint>

#include "cc/tensor/dtype.h"
#include "cc/tensor/tensor_view.h"
#include "cuda/gpu_vendor.h"

namespace pagemill::gpu {

struct Activations {
  void* data;
  int64_t stride;  // elements from one row to the next
  DType type;

  template <typename T>
  PAGEMILL_DEVICE T* At(int64_t row, int64_t i) const {
    return static_cast<T*>(data) + row * stride + i;
  }
  PAGEMILL_DEVICE float Load(int64_t row, int64_t i) const {
    if (type == DType::kBF16) return ToFloat(*At<BFloat16>(row, i));
    return type == DType::kF16 ? ToFloat(*At<Half>(row, i)) : *At<float>(row, i);
  }
  PAGEMILL_DEVICE void Store(int64_t row, int64_t i, float value) const {
    if (type == DType::kBF16) {
      *At<BFloat16>(row, i) = FromFloat<BFloat16>(value);
    } else if (type == DType::kF16) {
      *At<Half>(row, i) = FromFloat<Half>(value);
    } else {
      *At<float>(row, i) = value;
    }
  }
};

inline Activations ActivationsOf(const TensorView& view) {
  return {view.data, view.row_stride_bytes / Info(view.dtype).block_bytes, view.dtype};
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_ATTENTION_ACTIVATIONS_H_
