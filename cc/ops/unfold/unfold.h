// File: cc/ops/unfold/unfold.h
// The windows of a convolution over the positions of each row, as rows that `linear` multiplies
// with its weights:
//
//   y[n, j, c * size + k] = x[n, j * stride + k - padding, c], 0 for positions outside [0, P)
//
//   inputs   x   act [N, P, C]
//   outputs  y   act [N, J, C * size], J = (P + 2 * padding - size) / stride + 1, rounded down
//   attributes   size, stride = 1, padding = 0: the positions of a window, those from one window to
//                the next, and those that are 0 on both sides; padding < size <= P + 2 * padding
//   aliasing     none
//
// The elements of a window are in the order of a convolution's weights [out, C, size].
//
// Exact: a copy.
#ifndef PAGEMILL_CC_OPS_UNFOLD_UNFOLD_H_
#define PAGEMILL_CC_OPS_UNFOLD_UNFOLD_H_

#include <cstdint>

#include "cc/ops/op.h"

namespace pagemill::ops {

const OpDefinition& UnfoldOp();

namespace unfold {

// Sizes of a checked call.
struct Windows {
  int64_t positions, channels;  // of a row of x
  int64_t count;                // of windows in a row
  int64_t size, stride, padding;

  int64_t elements() const { return channels * size; }  // of a window
};

inline Windows WindowsOf(const OpCall& call) {
  const TensorView& x = call.inputs[0];
  return {.positions = x.shape[1],
          .channels = x.shape[2],
          .count = call.outputs[0].shape[1],
          .size = call.attributes->GetInt("size", 0),
          .stride = call.attributes->GetInt("stride", 1),
          .padding = call.attributes->GetInt("padding", 0)};
}

void RunPortable(const OpCall& call, KernelContext& context);
void RunReference(const OpCall& call, KernelContext& context);

}  // namespace unfold

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_UNFOLD_UNFOLD_H_
