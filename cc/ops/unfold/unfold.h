// File: cc/ops/unfold/unfold.h
// The windows of a convolution over the positions of each row, as rows that `linear` multiplies
// with its weights:
//
//   y[n, j, c * size + k] = x[n, j * stride + k - padding, c], 0 for positions outside [0, P)
//
// or windows that an index lists, over the positions of each group of G rows, one after the other:
//
//   y[n, j, c * size + k] = x[g + p / P, p % P, c] with g = n - n % G, p = index[n % G, j, k],
//                           0 for positions outside [0, G P), or of rows behind the last
//
//   inputs   x      act [N, P, C], or with an index rows of P C elements in any shape
//            index  i32 [G, J, size], or left out
//   outputs  y      act [N, J, C * size], with an index windows in any shape; without one
//                   J = (P + 2 * padding - size) / stride + 1, rounded down
//   attributes   without an index size, stride = 1, padding = 0: the positions of a window, those
//                from one window to the next, and those that are 0 on both sides;
//                padding < size <= P + 2 * padding; with an index channels, C
//   aliasing     none
//
// The elements of a window are in the order of a convolution's weights [out, C, size]. With windows
// of one position the index gathers rows.
//
// Exact: a copy.
#ifndef PAGEMILL_CC_OPS_UNFOLD_UNFOLD_H_
#define PAGEMILL_CC_OPS_UNFOLD_UNFOLD_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "cc/ops/op.h"

namespace pagemill::ops {

const OpDefinition& UnfoldOp();

namespace unfold {

inline constexpr size_t kIndex = 1;  // an optional input

// Sizes of a checked call.
struct Windows {
  int64_t positions, channels;  // of a row of x
  int64_t count;                // of windows in a row
  int64_t size, stride, padding;
  int64_t group = 1;               // rows that an index is for
  const int32_t* index = nullptr;  // [group, count, size]; null: windows along each row

  int64_t elements() const { return channels * size; }  // of a window
};

inline Windows WindowsOf(const OpCall& call) {
  const TensorView& x = call.inputs[0];
  Windows windows{.positions = x.shape[1],
                  .channels = x.shape[2],
                  .count = call.outputs[0].shape[1],
                  .size = call.attributes->GetInt("size", 0),
                  .stride = call.attributes->GetInt("stride", 1),
                  .padding = call.attributes->GetInt("padding", 0)};
  if (call.inputs.size() <= kIndex) return windows;
  const TensorView& index = call.inputs[kIndex];
  windows.size = index.shape[2];
  windows.channels = call.attributes->GetInt("channels", 0);
  windows.positions = x.RowElements() / windows.channels;
  windows.group = index.shape[0];
  windows.index = index.Data<const int32_t>();
  return windows;
}

// Row and position of x at the k-th place of window `j` of row `n`.
struct Place {
  int64_t row, position;
};
// Null if that place is 0; `rows` is the number of rows of x.
inline std::optional<Place> PlaceOf(const Windows& windows, int64_t rows, int64_t n, int64_t j,
                                    int64_t k) {
  if (windows.index == nullptr) {
    const int64_t position = j * windows.stride + k - windows.padding;
    if (position < 0 || position >= windows.positions) return std::nullopt;
    return Place{n, position};
  }
  const int64_t in_group = n % windows.group, first = n - in_group;
  const int64_t left = rows - first < windows.group ? rows - first : windows.group;
  const int64_t at = windows.index[(in_group * windows.count + j) * windows.size + k];
  if (at < 0 || at >= left * windows.positions) return std::nullopt;
  return Place{first + at / windows.positions, at % windows.positions};
}

void RunPortable(const OpCall& call, KernelContext& context);
void RunReference(const OpCall& call, KernelContext& context);

}  // namespace unfold

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_UNFOLD_UNFOLD_H_
