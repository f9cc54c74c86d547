// File: cc/ops/all_reduce/all_reduce.h
// The sum over the ranks of a group: y = x of rank 0 + x of rank 1 ...
//
//   inputs      x  act or f32 [N, ...]   rows of H elements, any trailing shape
//   outputs     y  as x
//   attributes  axis, ranks (cc/ops/collective.h)
//   aliasing    y may be x
//
// N is the same on all ranks: those of the tensor axis run the same batch. With 0 rows
// nothing moves and no rank waits.
//
// Result: parts are added in f32 in the group's fixed order (shared memory: that of ranks) and
// rounded once, so every rank gets the same bits, whatever the rest of the batch and whichever rank
// is first. A group of one copies.
//
// A group that ends (a rank died) leaves y undefined; it keeps the error, which the executor
// returns for the step.
//
// Kernels: "dense" makes one call for dense operands, "reference" one for each row.
#ifndef PAGEMILL_CC_OPS_ALL_REDUCE_ALL_REDUCE_H_
#define PAGEMILL_CC_OPS_ALL_REDUCE_ALL_REDUCE_H_

#include "cc/ops/op.h"

namespace pagemill::ops {

const OpDefinition& AllReduceOp();

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_ALL_REDUCE_ALL_REDUCE_H_
