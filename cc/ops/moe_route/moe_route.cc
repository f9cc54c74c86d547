#include "cc/ops/moe_route/moe_route.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "cc/ops/kernel_support.h"
#include "cc/ops/operand_check.h"

namespace pagemill::ops {
namespace {

bool HasInput(const OpCall& call, size_t input) {
  return call.inputs.size() > input && call.inputs[input].rank > 0;
}

Status CheckMoeRoute(const OpCall& call) {
  const size_t inputs = call.inputs.size() > 3 ? 5 : std::clamp<size_t>(call.inputs.size(), 2, 3);
  OperandCheck check("moe_route", call, inputs, /*outputs=*/2);
  check.Input(0, "logits", DType::kF32, "N,E");
  if (check.ok() && HasInput(call, 1)) check.Input(1, "bias", DType::kF32, "E");
  if (check.ok() && HasInput(call, 2)) check.Input(2, "factors", DType::kF32, "E");
  if (check.ok() && HasInput(call, 4)) {
    check.Input(3, "token_ids", DType::kI32, "N");
    check.Input(4, "table", DType::kF32, "V,J");
  }
  check.Output(0, "ids", DType::kI32, "N,J");
  check.Output(1, "weights", DType::kF32, "N,J");
  const int64_t experts = check.Dim('E'), choices = check.Dim('J');
  check.IntegerAttribute("choices", /*fallback=*/0, choices, choices);
  check.IntegerAttribute("scoring", /*fallback=*/-1, 0, 3);
  check.IntegerAttribute("renormalize", 0, 0, 1);
  check.IntegerAttribute("logits_bias", 0, 0, 1);
  check.IntegerAttribute("groups", 1, 1, std::max<int64_t>(1, experts));
  check.IntegerAttribute("first", 0, 0, std::max<int64_t>(1, experts) - 1);
  if (!check.ok()) return check.Result();
  const moe_route::Args args = moe_route::ToArgs(call);
  if (args.scoring == moe_route::Scoring::kSparseMixer) {
    check.Require(args.groups == 1 && args.bias == nullptr,
                  "SparseMixer (scoring 2) has no groups and no bias");
    check.Require(args.tolerance >= 0 && std::isfinite(args.tolerance),
                  "attribute tolerance must be a number of at least 0");
  }
  check.Require(!args.has_table() ||
                    (args.groups == 1 && args.bias == nullptr &&
                     args.scoring != moe_route::Scoring::kSparseMixer),
                "with a table there are no groups, no bias and no SparseMixer");
  check.Require(experts % args.groups == 0, std::to_string(experts) +
                                                " experts are not a multiple of " +
                                                std::to_string(args.groups) + " groups");
  check.IntegerAttribute("group_choices", static_cast<double>(args.groups), 1, args.groups);
  check.IntegerAttribute("group_top", 1, 1, std::min<int64_t>(2, args.GroupSize()));
  check.Require(choices >= 1 && choices <= args.group_choices * args.GroupSize(),
                "cannot choose " + std::to_string(choices) + " of " +
                    std::to_string(args.group_choices * args.GroupSize()) + " experts");
  return check.Result();
}

constexpr Kernel kKernels[] = {
    {"moe_route", "portable", 10, OnEveryCpu, moe_route::RunPortable,
     moe_route::PortableWorkspaceBytes},
    {"moe_route", "reference", 0, OnEveryCpu, moe_route::RunReference,
     moe_route::ReferenceWorkspaceBytes},
};

constexpr OpDefinition kDefinition{"moe_route", CheckMoeRoute, kKernels};

}  // namespace

const OpDefinition& MoeRouteOp() { return kDefinition; }

namespace moe_route {

Args ToArgs(const OpCall& call) {
  const Attributes& attributes = *call.attributes;
  const int64_t groups = attributes.GetInt("groups", 1);
  return {.logits = call.inputs[0],
          .ids = call.outputs[0],
          .weights = call.outputs[1],
          .bias = HasInput(call, 1) ? call.inputs[1].Data<const float>() : nullptr,
          .factors = HasInput(call, 2) ? call.inputs[2].Data<const float>() : nullptr,
          .token_ids = HasInput(call, 4) ? call.inputs[3] : TensorView{},
          .table = HasInput(call, 4) ? call.inputs[4] : TensorView{},
          .experts = call.inputs[0].shape[1],
          .choices = call.outputs[0].shape[1],
          .scoring = static_cast<Scoring>(attributes.GetInt("scoring", 0)),
          .tolerance = static_cast<float>(attributes.Get("tolerance", 0)),
          .logits_bias = attributes.GetInt("logits_bias", 0) != 0,
          .renormalize = attributes.GetInt("renormalize", 0) != 0,
          .scale = static_cast<float>(attributes.Get("scale", 1)),
          .groups = groups,
          .group_choices = attributes.GetInt("group_choices", groups),
          .group_top = attributes.GetInt("group_top", 1),
          .first = static_cast<int32_t>(attributes.GetInt("first", 0))};
}

}  // namespace moe_route

}  // namespace pagemill::ops
