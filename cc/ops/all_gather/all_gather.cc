#include "cc/ops/all_gather/all_gather.h"

#include <array>
#include <cstring>
#include <span>
#include <string>

#include "cc/comm/communicator.h"
#include "cc/ops/kernel_support.h"
#include "cc/ops/operand_check.h"

namespace pagemill::ops {
namespace {

Status CheckAllGather(const OpCall& call) {
  OperandCheck check("all_gather", call, /*inputs=*/1, /*outputs=*/1);
  check.Input(0, "x", DType::kF32, "N,P*");
  check.Output(0, "y", DType::kF32, "N,W*");
  check.IntegerAttribute("ranks", 0, 1, comm::kMaxRanks);
  if (!check.ok()) return check.Result();
  const int64_t ranks = call.attributes->GetInt("ranks", 1);
  check.IntegerAttribute("rank", -1, 0, static_cast<int64_t>(ranks) - 1);
  if (!check.ok()) return check.Result();
  const int64_t rank = call.attributes->GetInt("rank", 0), width = check.Dim('W');
  const int64_t part = GatherBegin(width, rank + 1, ranks) - GatherBegin(width, rank, ranks);
  check.Require(check.Dim('P') == part, "rank " + std::to_string(rank) + " of " +
                                            std::to_string(ranks) + " has " + std::to_string(part) +
                                            " of " + std::to_string(width) + " columns, x has " +
                                            std::to_string(check.Dim('P')));
  return check.Result();
}

void Gather(const float* x, float* y, int64_t rows, int64_t width, comm::Communicator* group) {
  if (group == nullptr) {
    if (rows > 0) std::memcpy(y, x, static_cast<size_t>(rows * width) * sizeof(float));
    return;
  }
  const int64_t ranks = group->num_ranks();
  std::array<int64_t, comm::kMaxRanks> widths = {};
  for (int64_t r = 0; r < ranks; ++r) {
    widths[static_cast<size_t>(r)] =
        GatherBegin(width, r + 1, ranks) - GatherBegin(width, r, ranks);
  }
  // The communicator keeps the error; a group that has ended does nothing.
  (void)group->AllGather(x, y, rows, std::span(widths).first(static_cast<size_t>(ranks)));
}

void RunReference(const OpCall& call, KernelContext& context) {
  const TensorView& x = call.inputs[0];
  const TensorView& y = call.outputs[0];
  for (int64_t n = 0; n < x.shape[0]; ++n) {
    Gather(x.Row<const float>(n), y.Row<float>(n), 1, y.RowElements(), context.group);
  }
}

void RunSharedMemory(const OpCall& call, KernelContext& context) {
  const TensorView& x = call.inputs[0];
  const TensorView& y = call.outputs[0];
  if (!x.IsDense() || !y.IsDense()) return RunReference(call, context);
  Gather(x.Data<const float>(), y.Data<float>(), x.shape[0], y.RowElements(), context.group);
}

constexpr KernelRow kRows[] = {
    {"all_gather", "shared_memory", 10, OnEveryCpu, RunSharedMemory},
    {"all_gather", "reference", 0, OnEveryCpu, RunReference},
};

constexpr OpDefinition kDefinition{"all_gather", CheckAllGather, kRows};

}  // namespace

const OpDefinition& AllGatherOp() { return kDefinition; }

}  // namespace pagemill::ops
