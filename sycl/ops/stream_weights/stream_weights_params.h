#ifndef PAGEMILL_SYCL_OPS_STREAM_WEIGHTS_STREAM_WEIGHTS_PARAMS_H_
#define PAGEMILL_SYCL_OPS_STREAM_WEIGHTS_STREAM_WEIGHTS_PARAMS_H_

#include "sycl/ops/operands.h"

namespace pagemill::sycl {

inline constexpr int32_t kMaxWeightedStreams = 16;

struct StreamWeightsParams {
  Rows mixes;                    // f32 [rows, n], or [rows, n * (n + 2)] with `after`
  const float* base = nullptr;   // as long as a row of mixes
  const float* scale = nullptr;  // [1], or [3]
  Rows before;                   // f32 [rows, n]
  Rows after;                    // f32 [rows, n, n + 1]; without data: it is not wanted
  int64_t rows = 0;
  int32_t streams = 0;  // n
  int32_t iterations = 1;
  float eps = 0;
};

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_STREAM_WEIGHTS_STREAM_WEIGHTS_PARAMS_H_
