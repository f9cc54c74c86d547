// File: cc/runner/grid_positions.h
// Positions of several dimensions (ops::StepArrays::grid_positions), computed from the request's
// media and the places of its tokens alone: preemption, cached prefixes, drafts and steps that end
// inside an item need nothing of their own.
//
//   AppendGridPositions(request, /*begin=*/0, /*end=*/7, &grid_positions);   // 7 * ops::kGridDims
//
// O(tokens + media items of the request).
#ifndef PAGEMILL_CC_RUNNER_GRID_POSITIONS_H_
#define PAGEMILL_CC_RUNNER_GRID_POSITIONS_H_

#include <cstdint>
#include <vector>

#include "cc/step/request.h"

namespace pagemill::runner {

// Those of tokens [begin, end). An item takes another number of positions than of tokens, and moves
// the text behind it by the difference.
void AppendGridPositions(const step::Request& request, int32_t begin, int32_t end,
                         std::vector<int32_t>* positions);

}  // namespace pagemill::runner

#endif  // PAGEMILL_CC_RUNNER_GRID_POSITIONS_H_
