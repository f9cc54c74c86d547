// File: cc/ops/rms_norm/rms_norm_row.h
// One row of `rms_norm` or `add_rms_norm`, for each instruction set. Plain data and functions only:
// files compiled for wide instructions include this header (docs/build.md).
#ifndef PAGEMILL_CC_OPS_RMS_NORM_RMS_NORM_ROW_H_
#define PAGEMILL_CC_OPS_RMS_NORM_RMS_NORM_ROW_H_

#include <cstdint>

namespace pagemill::ops {

struct RmsNormRow {
  const float* x = nullptr;         // [size]
  const float* residual = nullptr;  // [size], or null: nothing is added
  const float* w = nullptr;         // [size]
  float* y = nullptr;               // [size]; may be x
  float* sum = nullptr;  // [size], x + residual; may be residual; unused without residual
  int64_t size = 0;
  float eps = 0;
  float weight_offset = 0;
};

using RmsNormRowFunction = void (*)(const RmsNormRow& row);

void RmsNormRowPortable(const RmsNormRow& row);
void RmsNormRowAvx2(const RmsNormRow& row);
void RmsNormRowAvx512(const RmsNormRow& row);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_RMS_NORM_RMS_NORM_ROW_H_
