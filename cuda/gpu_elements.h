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
// Or for every few vectors of kSize elements (WithVectorSize of gpu_rows.h), of which `i` is the first:
// ShapeOfElements(rows, size, kSize), ForElements<kSize>(size, body).
#ifndef PAGEMILL_CUDA_GPU_ELEMENTS_H_
#define PAGEMILL_CUDA_GPU_ELEMENTS_H_

#include <algorithm>
#include <cstdint>

#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/gpu_vendor.h"

namespace pagemill::gpu {

inline constexpr int64_t kElementsOfBlock = 1024;  // of one row
inline constexpr int64_t kElementsOfThread = 4;

inline LaunchShape ShapeOfElements(int64_t rows, int64_t size, int64_t vector_size = 1) {
  const int64_t of_thread = std::max(kElementsOfThread, vector_size);
  return {.blocks = {static_cast<uint32_t>(rows), DivideUp(size, kElementsOfBlock)},
          .threads = {BlockThreads(size, of_thread, kElementsOfBlock / of_thread)}};
}

// Calls body(row, i) for the elements i of the thread.
template <int kSize = 1, typename Body>
PAGEMILL_DEVICE void ForElements(int64_t size, const Body& body) {
  const int64_t row = BlockIndex().x, begin = BlockIndex().y * kElementsOfBlock;
  const int64_t end = begin + kElementsOfBlock < size ? begin + kElementsOfBlock : size;
  const int64_t step = int64_t{BlockSize().x} * kSize;
  for (int64_t i = begin + int64_t{ThreadIndex().x} * kSize; i < end; i += step) body(row, i);
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_GPU_ELEMENTS_H_
