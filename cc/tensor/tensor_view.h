// File: cc/tensor/tensor_view.h
// A non-owning view of a dense, row-major tensor: pointer, dtype, up to four dimensions, and a row
// stride for views into wider buffers (DLPack-compatible: every stride but that of dimension 0
// follows from the shape).
//
//   TensorView x = TensorView::Dense(ptr, DType::kF32, {tokens, hidden});
//   float* row = x.Row<float>(3);
//
// Trivially copyable. Thread safety: as of the memory it points to.
#ifndef PAGEMILL_CC_TENSOR_TENSOR_VIEW_H_
#define PAGEMILL_CC_TENSOR_TENSOR_VIEW_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "cc/tensor/dtype.h"

namespace pagemill {

struct QuantizedParts;  // quantized.h

struct TensorView {
  static constexpr int kMaxRank = 4;

  void* data = nullptr;
  DType dtype = DType::kF32;
  int32_t rank = 0;
  std::array<int64_t, kMaxRank> shape{};
  int64_t row_stride_bytes = 0;  // distance between consecutive indices of dimension 0
  // For a quantized matrix or a stack of them: its values (which `data` also points to), scales and
  // zero points. Null: elements are plain values of the dtype.
  const QuantizedParts* parts = nullptr;

  // The number of elements per index of dimension 0.
  int64_t RowElements() const {
    int64_t n = 1;
    for (int i = 1; i < rank; ++i) n *= shape[i];
    return n;
  }
  int64_t Elements() const { return rank == 0 ? 1 : shape[0] * RowElements(); }
  bool IsDense() const { return row_stride_bytes == RowBytes(dtype, RowElements()); }

  template <typename T>
  T* Row(int64_t i) const {
    return reinterpret_cast<T*>(static_cast<std::byte*>(data) + i * row_stride_bytes);
  }
  template <typename T>
  T* Data() const {
    return static_cast<T*>(data);
  }

  // Rank-1 tensors of block formats do not exist: rows are dimension 0 of rank >= 2.
  static TensorView Dense(void* data, DType dtype, std::initializer_list<int64_t> dims) {
    TensorView v;
    v.data = data;
    v.dtype = dtype;
    for (int64_t d : dims) v.shape[v.rank++] = d;
    v.row_stride_bytes = RowBytes(dtype, v.RowElements());
    return v;
  }
};

}  // namespace pagemill

#endif  // PAGEMILL_CC_TENSOR_TENSOR_VIEW_H_
