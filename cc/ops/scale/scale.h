// File: cc/ops/scale/scale.h
// Multiplies by a number: y = x * by; or by one that grows with the position of the row, as queries
// of Ministral 3 and Llama 4 are:
//
//   y[n] = x[n] * by * (1 + growth * ln(1 + floor((positions[n] + offset) / context)))
//
// or each column by a factor of its own: y[n][i] = x[n][i] * by * factors[i]; or each group of a
// row, a head of an attention's result: y[n][g][i] = x[n][g][i] * by * factors[n][g].
//
//   inputs   x          act [N, ...]   rows of H elements, any trailing shape
//            positions  i32 [N]        >= 0; left out if nothing grows; or
//            factors    f32 [H], or f32 [N, G] for x [N, G, ...]
//   outputs  y          act [N, ...]   rows of H elements
//   attributes  by: finite; with positions growth, finite, and context, a whole number above 0,
//               and offset=0, a whole number of at least 0
//   aliasing    y may be x
//
// Result: exact rounding of each product with the factor of its row, which is computed in double
// and rounded to float, and then of that with the factor of the column or group; every kernel gives
// the same bits.
//
// Kernels: "portable", "reference".
#ifndef PAGEMILL_CC_OPS_SCALE_SCALE_H_
#define PAGEMILL_CC_OPS_SCALE_SCALE_H_

#include <cstdint>

#include "cc/ops/op.h"

namespace pagemill::ops {

struct ScaleArgs {
  TensorView x, y;
  const int32_t* positions = nullptr;  // null: every row is multiplied by the same number
  const float* factors = nullptr;  // [H]; null: every column is multiplied by the same number
  TensorView group_factors;        // [N, G]; of rank 0: there are none
  double by = 0;
  double growth = 0;
  int64_t context = 1;
  int64_t offset = 0;

  float FactorOf(int64_t row) const;
};

ScaleArgs ToScaleArgs(const OpCall& call);
const OpDefinition& ScaleOp();

void ScaleReference(const OpCall& call, KernelContext& context);
void ScalePortable(const OpCall& call, KernelContext& context);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_SCALE_SCALE_H_
