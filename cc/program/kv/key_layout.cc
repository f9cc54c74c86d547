#include "cc/program/kv/key_layout.h"

#include <algorithm>
#include <string_view>
#include <tuple>
#include <vector>

#include "cc/ops/kv_write/key_layout.h"
#include "cc/program/operand_views.h"

namespace pagemill::program {
namespace {

constexpr std::string_view kAttention = "paged_attention";
constexpr std::string_view kKeyOps[] = {"kv_write", kAttention, "rotary_kv_write"};

bool HasKeys(const Program& program, const Op& op) {
  return std::any_of(op.inputs.begin(), op.inputs.end(), [&](ValueId id) {
    return id != kNoValue && program.value(id).kind == ValueKind::kCache &&
           program.value(id).cache.layout == CacheLayout::kKv;
  });
}

}  // namespace

Status ChooseKeyLayout(const Target& target, const ExecutorOptions& options, Program* program) {
  PAGEMILL_ASSIGN_OR_RETURN(const KvLayout layout, PlanKvLayout(*program, GeometryOf(options)));
  // Higher is better.
  const auto rank = [&](const ops::Kernel& kernel) {
    return std::tuple(kernel.name == options.kernel_filter, kernel.priority);
  };
  std::vector<Op*> found;
  bool better = false;
  for (Op& op : program->mutable_ops()) {
    if (!HasKeys(*program, op)) continue;
    if (std::ranges::find(kKeyOps, op.name) == std::end(kKeyOps)) return OkStatus();
    const StatusOr<const ops::OpDefinition*> definition = ops::FindOp(target.ops, op.name);
    if (!definition.ok()) return OkStatus();  // reported when kernels are selected
    Op with_rows = op;
    with_rows.attributes.Set(ops::kKeysInRows, 1);
    const auto choose = [&](const Op& of) {
      const OperandViews operands(*program, of, options.max_sizes(), layout);
      return ChooseKernelFor(**definition, target.capabilities, operands.call(), options);
    };
    const StatusOr<const ops::Kernel*> columns = choose(op), rows = choose(with_rows);
    if (!columns.ok() || !rows.ok()) return OkStatus();
    if (op.name == kAttention) {
      better = rank(**rows) > rank(**columns);
      if (!better) return OkStatus();
    }
    found.push_back(&op);
  }
  if (!better) return OkStatus();
  for (Op* op : found) op->attributes.Set(ops::kKeysInRows, 1);
  return OkStatus();
}

void CopyKeyLayout(const Program& from, Program* program) {
  const size_t count = std::min(from.ops().size(), program->ops().size());
  for (size_t i = 0; i < count; ++i) {
    if (from.ops()[i].attributes.GetInt(ops::kKeysInRows, 0) == 0) continue;
    program->mutable_ops()[i].attributes.Set(ops::kKeysInRows, 1);
  }
}

}  // namespace pagemill::program
