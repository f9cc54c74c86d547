// File: cuda/gpu_batch.h
// Tokens, requests and pages of a step's batch (cc/ops/batch_view.h), for kernels.
//
//   Launch(stream, shape, Attend<T>, ..., StepTokensOf(*call.batch));
#ifndef PAGEMILL_CUDA_GPU_BATCH_H_
#define PAGEMILL_CUDA_GPU_BATCH_H_

#include <cstdint>

#include "cc/ops/batch_view.h"
#include "cuda/gpu_vendor.h"

namespace pagemill::gpu {

struct StepTokens {
  const int32_t* data;  // the block table
  int64_t table_stride;
  int32_t block_size;
  const int32_t* query_start;
  const int32_t* seq_lens;
  int32_t num_requests;
};

inline StepTokens StepTokensOf(const ops::BatchView& batch) {
  return {batch.block_table, batch.block_table_stride, batch.block_size,
          batch.query_start, batch.seq_lens,           batch.num_requests};
}

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
