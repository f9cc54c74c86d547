#ifndef PAGEMILL_SYCL_OPS_MIX_STREAMS_MIX_STREAMS_PARAMS_H_
#define PAGEMILL_SYCL_OPS_MIX_STREAMS_MIX_STREAMS_PARAMS_H_

#include "sycl/ops/operands.h"

namespace pagemill::sycl {

struct MixStreamsParams {
  Rows x;        // [rows, streams, width]
  Rows weights;  // f32 [rows, mixes, streams], one more with y
  Rows y;        // [rows, width]; without data: none
  Rows z;        // [rows, mixes, width]
  int64_t rows = 0, streams = 0, mixes = 0, width = 0;
};

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_MIX_STREAMS_MIX_STREAMS_PARAMS_H_
