// File: cuda/ops/linear/quotient.h
// Divisions by a number that is known when a kernel is launched.
#ifndef PAGEMILL_CUDA_OPS_LINEAR_QUOTIENT_H_
#define PAGEMILL_CUDA_OPS_LINEAR_QUOTIENT_H_

#include <cstdint>

#include "cuda/gpu_vendor.h"

namespace pagemill::gpu {

// n / divisor for small n: kernels divide for every few columns.
struct Quotient {
  uint64_t inverse;  // of the divisor, times 2^32

  // Right where n times the divisor is below 2^32.
  static Quotient By(int64_t divisor) {
    return {(uint64_t{1} << 32) / static_cast<uint64_t>(divisor) + 1};
  }
  PAGEMILL_DEVICE int64_t Of(uint32_t n) const {
    return static_cast<int64_t>((n * inverse) >> 32);
  }
};

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_LINEAR_QUOTIENT_H_
