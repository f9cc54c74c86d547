// File: cuda/gpu_elements.h
// Elementwise kernels: a thread for every few elements of a row.
//
//   template <typename T>
//   PAGEMILL_KERNEL Negate(Rows<const T> x, Rows<T> y, int64_t size) {
//     ForElements(size, [&](int64_t row, int64_t i) {
//       y[row][i] = FromFloat<T>(-ToFloat(x[row][i]));
//     });
//   }
//   ...
//   Launch(stream, ShapeOfElements(rows, size), Negate<T>, x, y, size);
//
// Kernels whose time goes by with bytes load vectors (cuda/ops/vectors/vectors_of_row.h).
#ifndef PAGEMILL_CUDA_GPU_ELEMENTS_H_
#define PAGEMILL_CUDA_GPU_ELEMENTS_H_

#include <cstdint>

#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/gpu_vendor.h"

namespace pagemill::gpu {

inline constexpr int64_t kElementsOfBlock = 1024;  // of one row
inline constexpr int64_t kElementsOfThread = 4;

inline LaunchShape ShapeOfElements(int64_t rows, int64_t size) {
  return {.blocks = {static_cast<uint32_t>(rows), DivideUp(size, kElementsOfBlock)},
          .threads = {BlockThreads(size, kElementsOfThread, kElementsOfBlock / kElementsOfThread)}};
}

// Calls body(row, i) for the elements i of the thread.
template <typename Body>
PAGEMILL_DEVICE void ForElements(int64_t size, const Body& body) {
  const int64_t row = BlockIndex().x, begin = BlockIndex().y * kElementsOfBlock;
  const int64_t end = begin + kElementsOfBlock < size ? begin + kElementsOfBlock : size;
  for (int64_t i = begin + ThreadIndex().x; i < end; i += BlockSize().x) body(row, i);
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_GPU_ELEMENTS_H_
