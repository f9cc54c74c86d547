// File: cuda/ops/linear/testing/rounded_to_f8.h
// Activations as kernels of fp8 round them, for tests that know exactly what is multiplied then. Test
// code only.
#ifndef PAGEMILL_CUDA_OPS_LINEAR_TESTING_ROUNDED_TO_F8_H_
#define PAGEMILL_CUDA_OPS_LINEAR_TESTING_ROUNDED_TO_F8_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "cc/tensor/float8.h"

namespace pagemill::gpu {

// `x` [rows, columns] with `block` columns of a row, or what is left of it, rounded to e4m3 together.
inline std::vector<float> RoundedToF8(std::vector<float> x, int64_t columns, int64_t block) {
  for (int64_t begin = 0; begin < static_cast<int64_t>(x.size()); begin += columns) {
    for (int64_t first = 0; first < columns; first += block) {
      const auto part = std::span(x).subspan(static_cast<size_t>(begin + first),
                                             static_cast<size_t>(std::min(block, columns - first)));
      float largest = 0;
      for (float value : part) largest = std::max(largest, std::abs(value));
      for (float& value : part) {
        value = F8E4M3ToFloat(FloatToF8E4M3(value * (448 / largest))) * (largest / 448);
      }
    }
  }
  return x;
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_LINEAR_TESTING_ROUNDED_TO_F8_H_
