#include "cc/ops/all_reduce/all_reduce.h"

#include <cstring>
#include <span>

#include "cc/comm/communicator.h"
#include "cc/ops/kernel_support.h"
#include "cc/ops/operand_check.h"

namespace pagemill::ops {
namespace {

Status CheckAllReduce(const OpCall& call) {
  OperandCheck check("all_reduce", call, /*inputs=*/1, /*outputs=*/1);
  check.Input(0, "x", DType::kF32, "N,H*");
  check.Output(0, "y", DType::kF32, "N,H*");
  check.IntegerAttribute("ranks", 0, 1, comm::kMaxRanks);
  return check.Result();
}

void Reduce(std::span<const float> x, std::span<float> y, comm::Communicator* group) {
  // The communicator keeps the error; a group that has ended does nothing.
  if (group != nullptr) {
    (void)group->AllReduce(x, y);
  } else if (!x.empty() && x.data() != y.data()) {
    std::memcpy(y.data(), x.data(), x.size_bytes());
  }
}

void RunReference(const OpCall& call, KernelContext& context) {
  const TensorView& x = call.inputs[0];
  const TensorView& y = call.outputs[0];
  const auto size = static_cast<size_t>(x.RowElements());
  for (int64_t n = 0; n < x.shape[0]; ++n) {
    Reduce({x.Row<const float>(n), size}, {y.Row<float>(n), size}, context.group);
  }
}

void RunSharedMemory(const OpCall& call, KernelContext& context) {
  const TensorView& x = call.inputs[0];
  const TensorView& y = call.outputs[0];
  if (!x.IsDense() || !y.IsDense()) return RunReference(call, context);
  const auto size = static_cast<size_t>(x.Elements());
  Reduce({x.Data<const float>(), size}, {y.Data<float>(), size}, context.group);
}

constexpr KernelRow kRows[] = {
    {"all_reduce", "shared_memory", 10, OnEveryCpu, RunSharedMemory},
    {"all_reduce", "reference", 0, OnEveryCpu, RunReference},
};

constexpr AliasRule kAliases[] = {{.input = 0, .output = 0}};

constexpr OpDefinition kDefinition{"all_reduce", CheckAllReduce, kRows, kAliases};

}  // namespace

const OpDefinition& AllReduceOp() { return kDefinition; }

}  // namespace pagemill::ops
