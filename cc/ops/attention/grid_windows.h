// File: cc/ops/attention/grid_windows.h
// Which keys a token sees if `attention` has the attribute grid_window: those of the run of
// consecutive tokens around it that lie in one window of the grid. The list of all tokens is made
// on the host once per step, for every kernel of the op.
//
//   const int64_t bytes = GridWindowsBytes(call);       // 0 without the attribute
//   ListGridWindows(call, plan);
//   const TokenKeys keys = GridWindows(call, plan)[token];
#ifndef PAGEMILL_CC_OPS_ATTENTION_GRID_WINDOWS_H_
#define PAGEMILL_CC_OPS_ATTENTION_GRID_WINDOWS_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "cc/ops/op.h"

namespace pagemill::ops {

// Keys [first, end), counted from the request's first token on.
struct TokenKeys {
  int32_t first = 0;
  int32_t end = 0;
};

// For a call of these (largest) shapes.
int64_t GridWindowsBytes(const OpCall& call);
// Reads the arrays of the batch, and no operand. Neither end of a token's keys is before that of an
// earlier token of the request.
void ListGridWindows(const OpCall& call, std::span<std::byte> plan);
// The list at `plan`, [T]; null without the attribute.
const TokenKeys* GridWindows(const OpCall& call, const std::byte* plan);

extern const BatchPlan kGridWindowsPlan;  // the list alone

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_ATTENTION_GRID_WINDOWS_H_
