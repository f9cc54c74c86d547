#include "cc/ops/all_reduce/all_reduce.h"

#include <cstring>

#include "cc/comm/group.h"
#include "cc/ops/collective.h"
#include "cc/ops/kernel_support.h"
#include "cc/ops/operand_check.h"

namespace pagemill::ops {
namespace {

Status CheckAllReduce(const OpCall& call) {
  OperandCheck check("all_reduce", call, /*inputs=*/1, /*outputs=*/1);
  check.ActInput(0, "x", "N,H*");
  check.ActOutput(0, "y", "N,H*");
  if (check.ok()) CheckGroupAttributes(check, *call.attributes);
  return check.Result();
}

void Reduce(DType dtype, const void* x, void* y, int64_t count, comm::Group* group) {
  // The group keeps the error; a group that has ended does nothing.
  if (group != nullptr) {
    (void)group->AllReduce(dtype, x, y, count);
  } else if (count > 0 && x != y) {
    std::memcpy(y, x, static_cast<size_t>(RowBytes(dtype, count)));
  }
}

void RunReference(const OpCall& call, KernelContext& context) {
  const TensorView& x = call.inputs[0];
  const TensorView& y = call.outputs[0];
  comm::Group* group = GroupOf(*call.attributes, context);
  for (int64_t n = 0; n < x.shape[0]; ++n) {
    Reduce(x.dtype, x.Row<const std::byte>(n), y.Row<std::byte>(n), x.RowElements(), group);
  }
}

void RunDense(const OpCall& call, KernelContext& context) {
  const TensorView& x = call.inputs[0];
  const TensorView& y = call.outputs[0];
  if (!x.IsDense() || !y.IsDense()) return RunReference(call, context);
  Reduce(x.dtype, x.data, y.data, x.Elements(), GroupOf(*call.attributes, context));
}

constexpr Kernel kKernels[] = {
    {"all_reduce", "dense", 10, InEveryType, RunDense},
    {"all_reduce", "reference", 0, InEveryType, RunReference},
};

constexpr AliasRule kAliases[] = {{.input = 0, .output = 0}};

constexpr OpDefinition kDefinition{"all_reduce", CheckAllReduce, kKernels, kAliases};

}  // namespace

const OpDefinition& AllReduceOp() { return kDefinition; }

}  // namespace pagemill::ops
