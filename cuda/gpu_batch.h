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
  int32_t recent_states;
};

inline StepTokens StepTokensOf(const ops::BatchView& batch) {
  return {.data = batch.block_table,
          .table_stride = batch.block_table_stride,
          .block_size = batch.block_size,
          .query_start = batch.query_start,
          .seq_lens = batch.seq_lens,
          .num_requests = batch.num_requests,
          .recent_states = batch.recent_states};
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
