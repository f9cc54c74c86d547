// File: cc/ops/activation/activation_row.h
// One row of `activation` or `gated_activation`, for each instruction set. Plain data and functions
// only: files compiled for wide instructions include this header (docs/build.md).
#ifndef PAGEMILL_CC_OPS_ACTIVATION_ACTIVATION_ROW_H_
#define PAGEMILL_CC_OPS_ACTIVATION_ACTIVATION_ROW_H_

#include <cstdint>

#include "cc/ops/activation/activation_kind.h"

namespace pagemill::ops {

struct ActivationRow {
  const float* x = nullptr;       // [size]
  const float* factor = nullptr;  // [size], or null: y = act(x) instead of act(x) * factor
  float* y = nullptr;             // [size]; may be x
  int64_t size = 0;
  ActivationKind kind = ActivationKind::kSilu;
  // If limited: without factor x from lower to limit; else x up to limit, and factor from -limit
  // to limit, plus offset.
  bool limited = false;
  float limit = 0;
  float lower = 0;
  float offset = 0;
};

using ActivationRowFunction = void (*)(const ActivationRow& row);

void ActivationRowPortable(const ActivationRow& row);
void ActivationRowAvx2(const ActivationRow& row);
void ActivationRowAvx512(const ActivationRow& row);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_ACTIVATION_ACTIVATION_ROW_H_
