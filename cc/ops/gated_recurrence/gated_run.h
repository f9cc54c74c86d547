// File: cc/ops/gated_recurrence/gated_run.h
// Some channels of `gated_recurrence` over the tokens between two states, for each instruction set.
// Plain data and functions only: files compiled for wide instructions include this header
// (docs/build.md).
#ifndef PAGEMILL_CC_OPS_GATED_RECURRENCE_GATED_RUN_H_
#define PAGEMILL_CC_OPS_GATED_RECURRENCE_GATED_RUN_H_

#include <cstdint>

namespace pagemill::ops {

// Strides are in floats.
struct GatedRun {
  const float* source = nullptr;  // [size]; null: these are a request's first tokens
  float* target = nullptr;        // [size]; may be source
  const float* x = nullptr;       // [tokens], rows of `x_stride`
  const float* gate = nullptr;    // [tokens]
  const float* rate = nullptr;    // [size]
  float* y = nullptr;             // [tokens]
  int64_t tokens = 0;
  int64_t size = 0;  // channels
  int64_t x_stride = 0;
  int64_t gate_stride = 0;
  int64_t y_stride = 0;
};

using GatedRunFunction = void (*)(const GatedRun& run);

void GatedRunPortable(const GatedRun& run);
void GatedRunAvx2(const GatedRun& run);
void GatedRunAvx512(const GatedRun& run);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_GATED_RECURRENCE_GATED_RUN_H_
