// File: cc/ops/pool/pool.h
// Pools the tokens of each request in the step to one vector, or gives each token's; optionally of
// unit L2 norm.
//
//   inputs   x  act [T, ...]   rows of H elements, any trailing shape; of kind kAll any rows
//   outputs  y  act or f32 [R, H]; of kind kAll as many rows as x
//   batch       query_start, num_requests
//   attributes  kind: a PoolKind; normalize = 0 or 1: divides by max(norm, 1e-12)
//   aliasing    none
//
// A request without tokens in the step gives zeros. Result: a request's bits depend on its rows
// alone. Error bound: 1e-6 relative to the largest |x| of the column (sums and logarithms are in
// double, one rounding to fp32 each for them and the division by the norm).
//
// Kernels: "portable", "reference". It runs once per step, not per layer.
#ifndef PAGEMILL_CC_OPS_POOL_POOL_H_
#define PAGEMILL_CC_OPS_POOL_POOL_H_

#include "cc/ops/op.h"

namespace pagemill::ops {

// Values of the attribute `kind` in program text. kSplade is log(1 + max(0, x)) of the largest x of
// each column (arXiv 2109.10086).
enum class PoolKind : int32_t { kMean = 0, kFirst = 1, kLast = 2, kAll = 3, kSplade = 4 };

struct PoolArgs {
  TensorView x, y;
  const BatchView* batch = nullptr;
  PoolKind kind = PoolKind::kMean;
  bool normalize = false;
};

PoolArgs ToPoolArgs(const OpCall& call);
const OpDefinition& PoolOp();

void PoolReference(const OpCall& call, KernelContext& context);
void PoolPortable(const OpCall& call, KernelContext& context);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_POOL_POOL_H_
