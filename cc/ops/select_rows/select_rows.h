// File: cc/ops/select_rows/select_rows.h
// Row gather of activations: y[l] = x[rows[l]]. The vocabulary projection of a step runs on the
// rows that are sampled from, not on all its tokens. With `count` n, y[l] is the concatenation of
// x[rows[l]] to x[rows[l] + n - 1]: encoders of images merge neighboring patches.
//
//   inputs   x     act [T, ...]
//            rows  i32 [L], each in [0, T)
//   outputs  y     act [L, ...] with n times as many elements a row as x
//   attributes     count = 1: n
//   aliasing       none
//
// Exact: a copy; zeros for rows past the last one of x.
#ifndef PAGEMILL_CC_OPS_SELECT_ROWS_SELECT_ROWS_H_
#define PAGEMILL_CC_OPS_SELECT_ROWS_SELECT_ROWS_H_

#include "cc/ops/op.h"

namespace pagemill::ops {

const OpDefinition& SelectRowsOp();

namespace select_rows {
void RunPortable(const OpCall& call, KernelContext& context);
void RunReference(const OpCall& call, KernelContext& context);
}  // namespace select_rows

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_SELECT_ROWS_SELECT_ROWS_H_
