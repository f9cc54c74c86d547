// File: cc/ops/all_reduce/all_reduce.h
// The sum over the ranks of a group, where each has a part of it: y = x of rank 0 + x of rank 1 ...
//
//   inputs      x  f32 [N, ...]   rows of H elements, any trailing shape
//   outputs     y  f32 [N, ...]   rows of H elements
//   attributes  ranks  of the group, 1 to 64; the executor checks that it is in such a group
//   aliasing    y may be x
//
// Result: parts are added in rank order in f32, so every rank gets the same bits, whatever else is
// in the batch and whoever is first. A group of one copies.
//
// A group that ends (a rank died) leaves y undefined; its communicator keeps the error, which the
// executor returns for the step.
//
// Kernels: "shared_memory" makes one call for dense operands, "reference" one for each row.
#ifndef PAGEMILL_CC_OPS_ALL_REDUCE_ALL_REDUCE_H_
#define PAGEMILL_CC_OPS_ALL_REDUCE_ALL_REDUCE_H_

#include "cc/ops/op.h"

namespace pagemill::ops {

const OpDefinition& AllReduceOp();

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_ALL_REDUCE_ALL_REDUCE_H_
