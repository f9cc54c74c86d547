// File: cc/ops/add/add.h
// Elementwise sum: y = a + b; b is a tensor of the shape of a, or one row for all rows of a.
//
//   inputs   a  act [N, ...]   rows of H elements, any trailing shape
//            b  act [N, ...] (rows of H elements) or f32 [H]
//   outputs  y  act [N, ...]   rows of H elements
//   aliasing    y may be a
//
// Result: exact rounding of each sum; every kernel gives the same bits.
//
// Kernels: "portable", "reference". In most programs a rewrite fuses `add` into
// cc/ops/add_rms_norm, and both kernels run at memory speed.
#ifndef PAGEMILL_CC_OPS_ADD_ADD_H_
#define PAGEMILL_CC_OPS_ADD_ADD_H_

#include "cc/ops/op.h"
#include "cc/ops/widened/widened.h"

namespace pagemill::ops {

struct AddArgs {
  TensorView a, b, y;
};

AddArgs ToAddArgs(const OpCall& call);
const OpDefinition& AddOp();

void AddReference(const OpCall& call, KernelContext& context);
inline constexpr F32Kernel kAddReference{.act_inputs = 0b11, .run = AddReference};
void AddPortable(const OpCall& call, KernelContext& context);

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_ADD_ADD_H_
