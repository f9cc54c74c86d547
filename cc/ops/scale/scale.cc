#include "cc/ops/scale/scale.h"

#include <cmath>
#include <limits>

#include "cc/ops/kernel_support.h"
#include "cc/ops/operand_check.h"
#include "cc/ops/widened/widened.h"

namespace pagemill::ops {
namespace {

// What the second input is.
bool HasFactors(const OpCall& call) {
  return call.inputs.size() > 1 && call.inputs[1].dtype == DType::kF32;
}
bool HasGroups(const OpCall& call) { return HasFactors(call) && call.inputs[1].rank == 2; }
bool Grows(const OpCall& call) { return call.inputs.size() > 1 && !HasFactors(call); }

Status CheckScale(const OpCall& call) {
  const bool two = call.inputs.size() > 1, grows = Grows(call), groups = HasGroups(call);
  OperandCheck check("scale", call, /*inputs=*/two ? 2 : 1, /*outputs=*/1);
  check.ActInput(0, "x", groups ? "N,G,D*" : "N,H*");
  if (two && !grows) check.Input(1, "factors", DType::kF32, groups ? "N,G" : "H");
  if (grows) check.Input(1, "positions", DType::kI32, "N");
  check.ActOutput(0, "y", groups ? "N,G,D*" : "N,H*");
  if (!check.ok()) return check.Result();
  constexpr double kMissing = std::numeric_limits<double>::quiet_NaN();
  const auto is_number = [&](const char* name) {
    return std::isfinite(static_cast<float>(call.attributes->Get(name, kMissing)));
  };
  check.Require(is_number("by"), "attribute by must be a finite number");
  if (!grows) return check.Result();
  check.Require(is_number("growth"), "attribute growth must be a finite number");
  check.IntegerAttribute("context", /*fallback=*/0, 1, std::numeric_limits<int32_t>::max());
  check.IntegerAttribute("offset", /*fallback=*/0, 0, std::numeric_limits<int32_t>::max());
  return check.Result();
}

constexpr F32Kernel kReference{.act_inputs = 0b1, .run = ScaleReference};

constexpr Kernel kKernels[] = {
    {"scale", "portable", 10, OnEveryCpu, ScalePortable},
    WidenedReference<&kReference>("scale"),
};

constexpr AliasRule kAliases[] = {{.input = 0, .output = 0}};

constexpr OpDefinition kDefinition{"scale", CheckScale, kKernels, kAliases};

}  // namespace

ScaleArgs ToScaleArgs(const OpCall& call) {
  const bool grows = Grows(call), groups = HasGroups(call);
  return {.x = call.inputs[0],
          .y = call.outputs[0],
          .positions = grows ? call.inputs[1].Data<const int32_t>() : nullptr,
          .factors = HasFactors(call) && !groups ? call.inputs[1].Data<const float>() : nullptr,
          .group_factors = groups ? call.inputs[1] : TensorView{},
          .by = call.attributes->Get("by", 0),
          .growth = call.attributes->Get("growth", 0),
          .context = call.attributes->GetInt("context", 1),
          .offset = call.attributes->GetInt("offset", 0)};
}

float ScaleArgs::FactorOf(int64_t row) const {
  if (positions == nullptr) return static_cast<float>(by);
  const int64_t contexts = (positions[row] + offset) / context;
  return static_cast<float>(by * (1 + growth * std::log(1 + static_cast<double>(contexts))));
}

const OpDefinition& ScaleOp() { return kDefinition; }

}  // namespace pagemill::ops
