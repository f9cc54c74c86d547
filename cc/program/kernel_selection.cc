#include "cc/program/kernel_selection.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "cc/ops/collective.h"
#include "cc/program/check_ops.h"
#include "cc/program/operand_views.h"

namespace pagemill::program {
namespace {

// Only constants can be packed once.
Status CheckPackedInputs(const Program& program, const Op& op, const ops::Kernel& kernel) {
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    const ops::WeightPacking* packing = ops::PackingOf(kernel, i);
    if (packing == nullptr || packing->follows || op.inputs[i] == kNoValue) continue;
    const Value& input = program.value(op.inputs[i]);
    if (input.kind == ValueKind::kWeight) continue;
    return InvalidArgument(LinePrefix(op.line) + op.name + ": kernel '" + std::string(kernel.name) +
                           "' packs input " + std::to_string(i) + ", but '" + input.name +
                           "' is not a weight");
  }
  return OkStatus();
}

// A filter that matches nothing is an error.
Status CheckFilter(const Program& program, const Target& target, const ExecutorOptions& options,
                   const KernelSelection& selection) {
  const auto named = [&](const ops::Kernel* kernel) {
    return kernel->name == options.kernel_filter;
  };
  if (options.kernel_filter.empty() || selection.kernels.empty() ||
      std::any_of(selection.kernels.begin(), selection.kernels.end(), named)) {
    return OkStatus();
  }
  std::set<std::string_view> names;
  for (const Op& op : program.ops()) {
    PAGEMILL_ASSIGN_OR_RETURN(const ops::OpDefinition* definition,
                              ops::FindOp(target.ops, op.name));
    const OperandViews operands(program, op, options.max_sizes(), selection.kv);
    for (const ops::Kernel& kernel : definition->kernels) {
      if (options.deterministic && kernel.varies_with_batch) continue;
      if (kernel.supports(target.capabilities, operands.call())) names.insert(kernel.name);
    }
  }
  std::string known;
  for (std::string_view name : names) known += (known.empty() ? "" : ", ") + std::string(name);
  return InvalidArgument("kernel_filter (--kernel-filter) is '" + options.kernel_filter +
                         "', but no op of the program can use a kernel of that name here, with "
                         "the activations that are allowed; there are " +
                         known);
}

// Assigns the same plan to calls that differ only in addresses.
class StepPlans {
 public:
  explicit StepPlans(KernelSelection* selection) : selection_(selection) {}

  // The plan of op `op`, or -1.
  int32_t Add(size_t op, const ops::Kernel& kernel, const OperandViews& operands, size_t table) {
    if (kernel.plan == nullptr) return -1;
    std::string key = operands.ToString() + " " + std::string(kernel.name) + std::to_string(table);
    for (const auto& [name, value] : operands.call().attributes->values()) {
      key += " " + name + "=" + std::to_string(value);
    }
    const auto [found, is_new] =
        plans_.try_emplace(std::move(key), static_cast<int32_t>(selection_->plans.size()));
    if (!is_new) return found->second;
    const int64_t bytes = kernel.plan->bytes(operands.call());
    selection_->plans.push_back({.op = op, .offset = selection_->plan_bytes, .bytes = bytes});
    selection_->plan_bytes += (bytes + kPlanAlignment - 1) / kPlanAlignment * kPlanAlignment;
    return found->second;
  }

 private:
  static constexpr int64_t kPlanAlignment = 64;
  KernelSelection* const selection_;
  std::map<std::string, int32_t> plans_;
};

}  // namespace

StatusOr<const ops::Kernel*> ChooseKernelFor(const ops::OpDefinition& definition,
                                             const device::Capabilities& capabilities,
                                             const ops::OpCall& call,
                                             const ExecutorOptions& options) {
  ops::KernelLimits limits = {.name = options.kernel_filter,
                              .activations = options.activations,
                              .deterministic = options.deterministic};
  if (limits.activations == ops::Precision::kMixedBlock &&
      definition.automatic_activations != nullptr) {
    limits.activations = definition.automatic_activations(call);
  }
  if (!limits.name.empty()) {
    StatusOr<const ops::Kernel*> row = ops::ChooseKernel(definition, capabilities, call, limits);
    if (row.ok()) return row;
    limits.name = {};
  }
  return ops::ChooseKernel(definition, capabilities, call, limits);
}

CacheGeometry GeometryOf(const ExecutorOptions& options) {
  const int32_t drafts = options.max_draft_tokens;
  return {.num_blocks = options.num_blocks,
          .block_size = options.block_size,
          .dtype = options.kv_cache_dtype,
          .page_bytes = options.kv_page_bytes,
          .recent_states = drafts > 0 || !options.state_checkpoints ? drafts + 1 : 0,
          .state_checkpoints = options.state_checkpoints};
}

StatusOr<KernelSelection> SelectKernels(const Program& program, const Target& target,
                                        const ExecutorOptions& options) {
  PAGEMILL_RETURN_IF_ERROR(options.Validate());
  if (program.activation_type() != options.activation_type) {
    return InvalidArgument(
        "the program's activations are " + std::string(Info(program.activation_type()).name) +
        ", activation_type is " + std::string(Info(options.activation_type).name));
  }
  PAGEMILL_RETURN_IF_ERROR(CheckOps(program, target.ops, options.kv_cache_dtype));
  KernelSelection selection;
  PAGEMILL_ASSIGN_OR_RETURN(selection.kv, PlanKvLayout(program, GeometryOf(options)));
  selection.num_threads =
      options.num_threads > 0 ? options.num_threads : std::max(1, target.capabilities.cpu.cores);
  StepPlans plans(&selection);
  for (const Op& op : program.ops()) {
    PAGEMILL_ASSIGN_OR_RETURN(const ops::OpDefinition* definition,
                              ops::FindOp(target.ops, op.name));
    OperandViews operands(program, op, options.max_sizes(), selection.kv);
    const StatusOr<const ops::Kernel*> row =
        ChooseKernelFor(*definition, target.capabilities, operands.call(), options);
    if (!row.ok()) {
      return Status(row.status().code(),
                    LinePrefix(op.line) + row.status().message() + ": " + operands.ToString());
    }
    PAGEMILL_RETURN_IF_ERROR(CheckPackedInputs(program, op, **row));
    selection.definitions.push_back(definition);
    operands.Pack(**row);
    selection.kernels.push_back(*row);
    selection.op_plans.push_back(plans.Add(selection.kernels.size() - 1, **row, operands,
                                           TableOf(program, op, selection.kv)));
    if ((*row)->workspace_bytes != nullptr) {
      selection.workspace_bytes =
          std::max(selection.workspace_bytes,
                   (*row)->workspace_bytes(operands.call(), selection.num_threads));
    }
  }
  PAGEMILL_RETURN_IF_ERROR(CheckFilter(program, target, options, selection));
  return selection;
}

std::vector<KernelChoice> Summarize(const Program& program, const KernelSelection& selection,
                                    const ExecutorOptions& options) {
  std::vector<KernelChoice> choices;
  for (size_t i = 0; i < program.ops().size(); ++i) {
    const Op& op = program.ops()[i];
    const OperandViews views(program, op, options.max_sizes(), selection.kv);
    KernelChoice choice = {op.name, views.ToString(), std::string(selection.kernels[i]->name), 1};
    const auto same = std::find_if(choices.begin(), choices.end(), [&](const KernelChoice& c) {
      return c.op == choice.op && c.operands == choice.operands && c.kernel == choice.kernel;
    });
    if (same == choices.end()) {
      choices.push_back(std::move(choice));
    } else {
      ++same->count;
    }
  }
  return choices;
}

Status CheckRanks(const Program& program, const Target& target) {
  for (const Op& op : program.ops()) {
    const Status status = ops::CheckGroups(op.attributes, target.groups);
    if (status.ok()) continue;
    return InvalidArgument(LinePrefix(op.line) + op.name + " " + status.message());
  }
  return OkStatus();
}

}  // namespace pagemill::program
