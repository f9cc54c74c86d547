// File: cc/ops/selective_scan/selective_run.h
// Some channels of `selective_scan` over the tokens between two states, for each instruction set.
// Plain data and functions only: files compiled for wide instructions include this header
// (docs/build.md).
#ifndef PAGEMILL_CC_OPS_SELECTIVE_SCAN_SELECTIVE_RUN_H_
#define PAGEMILL_CC_OPS_SELECTIVE_SCAN_SELECTIVE_RUN_H_

#include <cstdint>

namespace pagemill::ops {

inline constexpr int64_t kMaxSelectiveStates = 64;
// Channels that are computed together.
inline constexpr int64_t kSelectiveBlock = 64;

// Strides are in floats.
struct SelectiveRun {
  const float* source = nullptr;   // [states], rows of `state_stride`; null: zeros
  float* target = nullptr;         // [states]; may be source
  const float* x = nullptr;        // [tokens], rows of `x_stride`
  const float* dt = nullptr;       // [tokens]
  const float* b = nullptr;        // [tokens, states]
  const float* c = nullptr;        // [tokens, states]
  const float* rates = nullptr;    // [states, kSelectiveBlock]: log2(e) * exp(a_log)
  const float* d = nullptr;        // [size]
  const float* dt_bias = nullptr;  // [size]
  float* y = nullptr;              // [tokens]
  int64_t tokens = 0;
  int64_t states = 0;  // at most kMaxSelectiveStates
  int64_t size = 0;    // channels, at most kSelectiveBlock
  int64_t state_stride = 0;
  int64_t x_stride = 0;
  int64_t dt_stride = 0;
  int64_t b_stride = 0;
  int64_t c_stride = 0;
  int64_t y_stride = 0;
};

struct SelectiveFunctions {
  void (*run)(const SelectiveRun& run);
  // Replaces a_log [states, kSelectiveBlock] by rates.
  void (*make_rates)(float* rates, int64_t states);
};

extern const SelectiveFunctions kSelectivePortable;
extern const SelectiveFunctions kSelectiveAvx2;
extern const SelectiveFunctions kSelectiveAvx512;

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_SELECTIVE_SCAN_SELECTIVE_RUN_H_
