// File: cuda/gpu_rows.h
// Rows of a tensor as kernels see them, and what hosts need to pass them on: the type of
// activations as a template argument, sizes of grids.
//
//   Launch(stream, {.blocks = {NumBlocks(rows)}, .threads = {128}}, ScaleRow<float>,
//          RowsOf<const float>(x), RowsOf<float>(y), size);
//   ...
//   const float* x = rows[BlockIndex().x];
#ifndef PAGEMILL_CUDA_GPU_ROWS_H_
#define PAGEMILL_CUDA_GPU_ROWS_H_

#include <algorithm>
#include <cstdint>

#include "cc/base/status.h"
#include "cc/tensor/tensor_view.h"
#include "cuda/gpu_vendor.h"

namespace pagemill::gpu {

template <typename T>
struct Rows {
  T* data;
  int64_t stride;  // elements from one row to the next

  PAGEMILL_DEVICE T* operator[](int64_t row) const { return data + row * stride; }
};

// `view` has elements of type T, and rows that begin at multiples of its size.
template <typename T>
Rows<T> RowsOf(const TensorView& view) {
  return {static_cast<T*>(view.data), view.row_stride_bytes / static_cast<int64_t>(sizeof(T))};
}

// True if each row of `view` begins at a multiple of 16 bytes: kernels may load Vectors.
inline bool HasAlignedRows(const TensorView& view) {
  return reinterpret_cast<uintptr_t>(view.data) % 16 == 0 && view.row_stride_bytes % 16 == 0;
}

// Calls `body` with a value of the type that activations of `dtype` have in memory.
template <typename Body>
void WithActType(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::kF32: return body(float{});
    case DType::kBF16: return body(BFloat16{});
    case DType::kF16: return body(Half{});
    default: PAGEMILL_CHECK(false);
  }
}

// Calls body.template operator()<kSize>() with the elements T that kernels load at once: 16 bytes of
// them if the rows of all views begin at whole ones and `size` is a multiple, else 1.
template <typename T, typename Body, typename... Views>
void WithVectorSize(int64_t size, const Body& body, const Views&... views) {
  constexpr int kWide = 16 / static_cast<int>(sizeof(T));
  if (size % kWide == 0 && (HasAlignedRows(views) && ...)) {
    body.template operator()<kWide>();
  } else {
    body.template operator()<1>();
  }
}

inline uint32_t DivideUp(int64_t count, int64_t by) {
  return static_cast<uint32_t>((count + by - 1) / by);
}

// Threads of a block that walks a row of `size` elements, `per_thread` at a time: whole warps of
// either size, at most `most`.
inline uint32_t BlockThreads(int64_t size, int64_t per_thread, int64_t most = 1024) {
  constexpr int64_t kWarp = 64;
  const int64_t wanted = (size + per_thread - 1) / per_thread;
  return static_cast<uint32_t>(std::clamp((wanted + kWarp - 1) / kWarp * kWarp, kWarp, most));
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_GPU_ROWS_H_
