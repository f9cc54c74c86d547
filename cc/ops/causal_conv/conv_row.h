// File: cc/ops/causal_conv/conv_row.h
// Some channels of one token of `causal_conv`, for each instruction set. Plain data and functions
// only: files compiled for wide instructions include this header (docs/build.md).
#ifndef PAGEMILL_CC_OPS_CAUSAL_CONV_CONV_ROW_H_
#define PAGEMILL_CC_OPS_CAUSAL_CONV_CONV_ROW_H_

#include <cstdint>

#include "cc/ops/activation/activation_kind.h"

namespace pagemill::ops {

struct ConvRow {
  const float* const* x = nullptr;  // [taps]: the rows that the taps multiply, oldest first
  const float* w = nullptr;         // [taps, w_stride]
  const float* bias = nullptr;      // [size]
  float* y = nullptr;               // [size]
  int64_t taps = 0;
  int64_t w_stride = 0;
  int64_t size = 0;
  ActivationKind kind = ActivationKind::kSilu;  // or kIdentity
};

using ConvRowFunction = void (*)(const ConvRow& row);

void ConvRowPortable(const ConvRow& row);
void ConvRowAvx2(const ConvRow& row);
void ConvRowAvx512(const ConvRow& row);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_CAUSAL_CONV_CONV_ROW_H_
