#ifndef PAGEMILL_SYCL_OPS_DEPTHWISE_CONV_DEPTHWISE_CONV_PARAMS_H_
#define PAGEMILL_SYCL_OPS_DEPTHWISE_CONV_DEPTHWISE_CONV_PARAMS_H_

#include "sycl/ops/operands.h"

namespace pagemill::sycl {

struct DepthwiseConvParams {
  Rows x, y;                        // rows of positions and of results, each of `channels`
  const float* w = nullptr;         // [channels, taps]
  const float* bias = nullptr;      // [channels], or null
  const int32_t* listed = nullptr;  // that of DepthwiseConvArgs
  int64_t tokens = 0, results = 1, positions = 1, channels = 0, taps = 0;
  bool is_indexed = false;
};

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_DEPTHWISE_CONV_DEPTHWISE_CONV_PARAMS_H_
