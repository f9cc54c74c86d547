// File: cuda/gpu_batch.h
// Tokens and requests of a step's batch (cc/ops/batch_view.h), for kernels.
#ifndef PAGEMILL_CUDA_GPU_BATCH_H_
#define PAGEMILL_CUDA_GPU_BATCH_H_

#include <cstdint>

#include "cuda/gpu_vendor.h"

namespace pagemill::gpu {

// The request of a token; num_requests if it belongs to none.
PAGEMILL_DEVICE int32_t RequestOf(const int32_t* query_start, int32_t num_requests, int32_t token) {
  int32_t low = 0, high = num_requests;  // the number of requests that end at or before the token
  while (low < high) {
    const int32_t middle = (low + high) / 2;
    if (query_start[middle + 1] <= token) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_GPU_BATCH_H_
