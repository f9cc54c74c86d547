// File: cc/ops/all_gather/all_gather.h
// Concatenates the columns that the ranks of a group have computed: y = [x of rank 0 | x of rank 1
// | ...].
//
//   inputs      x  act or f32 [N, W_r]
//   outputs     y  [N, W], of the type of x
//   attributes  axis, ranks, rank (cc/ops/collective.h)
//
// N is the same on all ranks. Rank r has columns GatherBegin(W, r, ranks) to GatherBegin(W, r + 1,
// ranks) of y.
//
// Result: exact copies; every rank gets the same bits. A group of one copies. A group that ends
// leaves y undefined; it keeps the error, which the executor returns for the step.
//
// Kernels: "dense" makes one call for dense operands, "reference" one for each row.
#ifndef PAGEMILL_CC_OPS_ALL_GATHER_ALL_GATHER_H_
#define PAGEMILL_CC_OPS_ALL_GATHER_ALL_GATHER_H_

#include <cstdint>

#include "cc/ops/op.h"

namespace pagemill::ops {

// First of the columns of rank `rank` out of `width`; python/pagemill/ops/shard.py divides the same
// way.
constexpr int64_t GatherBegin(int64_t width, int64_t rank, int64_t ranks) {
  return width * rank / ranks;
}

const OpDefinition& AllGatherOp();

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_ALL_GATHER_ALL_GATHER_H_
