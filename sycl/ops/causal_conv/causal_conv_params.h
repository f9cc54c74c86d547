#ifndef PAGEMILL_SYCL_OPS_CAUSAL_CONV_CAUSAL_CONV_PARAMS_H_
#define PAGEMILL_SYCL_OPS_CAUSAL_CONV_CAUSAL_CONV_PARAMS_H_

#include "sycl/ops/operands.h"

namespace pagemill::sycl {

struct CausalConvParams {
  Rows x, y;                             // rows of `channels` elements
  const float* w = nullptr;              // [channels, taps], the newest last
  const float* bias = nullptr;           // [channels], or null
  Rows states;                           // pages of f32 [taps - 1, channels]
  // Those of BatchView, by their names there: kernels read the states' pages from them.
  const int32_t* query_start = nullptr;  // [requests + 1]
  const int32_t* seq_lens = nullptr;     // [requests]
  const int32_t* block_table = nullptr;  // [requests, block_table_stride]
  int64_t block_table_stride = 0;
  int32_t block_size = 0, recent_states = 0;
  int32_t requests = 0;
  int32_t taps = 0;
  int64_t rows = 0, channels = 0;
  bool silu = true;
};

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_CAUSAL_CONV_CAUSAL_CONV_PARAMS_H_
