// File: cc/ops/scatter_rows/scatter_rows.h
// Replaces rows: z = x, except z[rows[m]] = y[m]. Replaces the embeddings of placeholder tokens by
// those of images; the inverse of select_rows.
//
//   inputs   x     act [T, ...]
//            y     act [M, ...] with as many elements a row as x
//            rows  i32 [M], each in [0, T), distinct
//   outputs  z     act [T, ...]
//   aliasing       z may be x
//
// Exact: a copy. Cost: the rows of y, and those of x unless z is x.
#ifndef PAGEMILL_CC_OPS_SCATTER_ROWS_SCATTER_ROWS_H_
#define PAGEMILL_CC_OPS_SCATTER_ROWS_SCATTER_ROWS_H_

#include "cc/ops/op.h"

namespace pagemill::ops {

const OpDefinition& ScatterRowsOp();

namespace scatter_rows {
void RunPortable(const OpCall& call, KernelContext& context);
void RunReference(const OpCall& call, KernelContext& context);
}  // namespace scatter_rows

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_SCATTER_ROWS_SCATTER_ROWS_H_
