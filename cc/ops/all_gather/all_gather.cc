#include "cc/ops/all_gather/all_gather.h"

#include <array>
#include <cstring>
#include <span>
#include <string>

#include "cc/comm/group.h"
#include "cc/ops/collective.h"
#include "cc/ops/kernel_support.h"
#include "cc/ops/operand_check.h"

namespace pagemill::ops {
namespace {

Status CheckAllGather(const OpCall& call) {
  OperandCheck check("all_gather", call, /*inputs=*/1, /*outputs=*/1);
  check.ActInput(0, "x", "N,P*");
  check.ActOutput(0, "y", "N,W*");
  if (check.ok()) CheckGroupAttributes(check, *call.attributes);
  if (!check.ok()) return check.Result();
  const int64_t ranks = call.attributes->GetInt("ranks", 1);
  const int64_t rank = call.attributes->GetInt("rank", 0), width = check.Dim('W');
  const int64_t part = GatherBegin(width, rank + 1, ranks) - GatherBegin(width, rank, ranks);
  check.Require(check.Dim('P') == part, "rank " + std::to_string(rank) + " of " +
                                            std::to_string(ranks) + " has " + std::to_string(part) +
                                            " of " + std::to_string(width) + " columns, x has " +
                                            std::to_string(check.Dim('P')));
  return check.Result();
}

// `rows` of y, each of `width` elements.
void Gather(const std::byte* x, const TensorView& y, std::byte* to, int64_t rows,
            comm::Group* group) {
  const int64_t width = y.RowElements();
  if (group == nullptr) {
    if (rows > 0) std::memcpy(to, x, static_cast<size_t>(rows * RowBytes(y.dtype, width)));
    return;
  }
  const int64_t ranks = group->num_ranks();
  std::array<int64_t, comm::kMaxRanks> bytes = {};
  for (int64_t r = 0; r < ranks; ++r) {
    bytes[static_cast<size_t>(r)] =
        RowBytes(y.dtype, GatherBegin(width, r + 1, ranks) - GatherBegin(width, r, ranks));
  }
  // The group keeps the error; a group that has ended does nothing.
  (void)group->AllGather(x, to, rows, std::span(bytes).first(static_cast<size_t>(ranks)));
}

void RunReference(const OpCall& call, KernelContext& context) {
  const TensorView& x = call.inputs[0];
  const TensorView& y = call.outputs[0];
  comm::Group* group = GroupOf(*call.attributes, context);
  for (int64_t n = 0; n < x.shape[0]; ++n) {
    Gather(x.Row<const std::byte>(n), y, y.Row<std::byte>(n), 1, group);
  }
}

void RunDense(const OpCall& call, KernelContext& context) {
  const TensorView& x = call.inputs[0];
  const TensorView& y = call.outputs[0];
  if (!x.IsDense() || !y.IsDense()) return RunReference(call, context);
  Gather(x.Data<const std::byte>(), y, y.Data<std::byte>(), x.shape[0],
         GroupOf(*call.attributes, context));
}

constexpr Kernel kKernels[] = {
    {"all_gather", "dense", 10, InEveryType, RunDense},
    {"all_gather", "reference", 0, InEveryType, RunReference},
};

constexpr OpDefinition kDefinition{.op = "all_gather",
                                   .check = CheckAllGather,
                                   .kernels = kKernels,
                                   .traits = {.gathers_columns = true}};

}  // namespace

const OpDefinition& AllGatherOp() { return kDefinition; }

}  // namespace pagemill::ops
