// File: cuda/ops/vectors/vectors_of_row.h
// Elementwise kernels: a thread for each vector of a row (WithVectorSize of gpu_rows.h).
//
//   template <typename T, int kSize>
//   PAGEMILL_KERNEL Negate(Rows<const T> x, Rows<T> y, int64_t size) {
//     WithOwnVector<kSize>(size, [&](int64_t row, int32_t i) {
//       Vector<T, kSize> negated = *reinterpret_cast<const Vector<T, kSize>*>(x[row] + i);
//       ...
//       *reinterpret_cast<Vector<T, kSize>*>(y[row] + i) = negated;
//     });
//   }
//   ...
//   Launch(stream, ShapeOfVectors<kSize>(rows, size), Negate<T, kSize>, x, y, size);
#ifndef PAGEMILL_CUDA_OPS_VECTORS_VECTORS_OF_ROW_H_
#define PAGEMILL_CUDA_OPS_VECTORS_VECTORS_OF_ROW_H_

#include <cstdint>

#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/gpu_vendor.h"

namespace pagemill::gpu {

inline constexpr int kVectorThreads = 128;  // of a block, at most

template <int kSize>
LaunchShape ShapeOfVectors(int64_t rows, int64_t size) {
  const uint32_t threads = BlockThreads(size, kSize, kVectorThreads);
  return {.blocks = {static_cast<uint32_t>(rows), DivideUp(size, int64_t{threads} * kSize)},
          .threads = {threads}};
}

// Calls body(row, i) with the first element of the thread's vector, if it has one. With indices of
// 64 bits nvcc stores vectors of 16 bytes a word at a time (instructions_test.py).
template <int kSize, typename Body>
PAGEMILL_DEVICE void WithOwnVector(int64_t size, const Body& body) {
  const int64_t row = BlockIndex().x;
  const auto i =
      static_cast<int32_t>((BlockIndex().y * BlockSize().x + ThreadIndex().x) * kSize);
  if (i < size) body(row, i);
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_VECTORS_VECTORS_OF_ROW_H_
