// File: cuda/emulation/matrix_core_kernels.h
// Kernels with the words of cuda/gpu_matrix_cores.h, for matrix_cores_test.cc; clang's HIP compiles
// them too.
#ifndef PAGEMILL_CUDA_EMULATION_MATRIX_CORE_KERNELS_H_
#define PAGEMILL_CUDA_EMULATION_MATRIX_CORE_KERNELS_H_

#include <cstdint>

#include "cuda/gpu_matrix_cores.h"
#include "cuda/gpu_vendor.h"

namespace pagemill::gpu {

// c [16, 16] = a [16, size] times b [16, size], transposed, of T: BFloat16, or uint8_t for e4m3;
// one warp; size % 32 == 0.
template <int kLanes, typename T>
PAGEMILL_KERNEL MultiplyOnMatrixCores(const T* a, const T* b, int size, float* c) {
  using Cores = MatrixCores<kLanes>;
  struct alignas(8 * sizeof(T)) Columns {
    uint32_t words[2 * sizeof(T)];
  };
  const int place = Lane() % 16, part = Lane() / 16;
  float sums[Cores::kSums] = {};
  for (int k = 8 * part; k < size; k += Cores::kColumns) {
    const auto of_a = *reinterpret_cast<const Columns*>(a + place * size + k);
    const auto of_b = *reinterpret_cast<const Columns*>(b + place * size + k);
    Cores::Multiply(of_a.words, of_b.words, sums);
  }
  const float unit = sizeof(T) == 1 ? Cores::Float8Unit() : 1;
  for (int i = 0; i < Cores::kSums; ++i) c[Cores::RowOfSum(i) * 16 + place] = sums[i] * unit;
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_EMULATION_MATRIX_CORE_KERNELS_H_
