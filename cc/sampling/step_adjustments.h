// File: cc/sampling/step_adjustments.h
// What an executor that draws tokens changes in a step's rows of logits, apart from masks, and what
// it counts for that; lists of program::StepDraws.
#ifndef PAGEMILL_CC_SAMPLING_STEP_ADJUSTMENTS_H_
#define PAGEMILL_CC_SAMPLING_STEP_ADJUSTMENTS_H_

#include <cstdint>
#include <vector>

#include "cc/ops/sample/row_adjustments.h"

namespace pagemill::sampling {

struct StepAdjustments {
  std::vector<int32_t> cleared_slots;
  std::vector<ops::TokenCount> counts;  // no two of one slot and token
  std::vector<ops::LogitBias> biases;   // no two of one row and token
  std::vector<ops::RowPenalties> penalties;

  void Clear() {
    cleared_slots.clear();
    counts.clear();
    biases.clear();
    penalties.clear();
  }
};

}  // namespace pagemill::sampling

#endif  // PAGEMILL_CC_SAMPLING_STEP_ADJUSTMENTS_H_
