#include "cc/program/memory/memory_plan.h"

#include <cinttypes>
#include <cstdio>

#include "cc/program/memory/activation_plan.h"
#include "cc/program/weights/packed_weights.h"
#include "cc/program/weights/weights.h"

namespace pagemill::program {
namespace {

std::string Line(const char* label, int64_t bytes) {
  char text[96];
  std::snprintf(text, sizeof(text), "%-12s %12.2f MiB  (%" PRId64 " bytes)\n", label,
                static_cast<double>(bytes) / (1 << 20), bytes);
  return text;
}

}  // namespace

std::string MemoryPlan::ToString() const {
  return Line("weights", weights_bytes) + Line("activations", activation_bytes) +
         Line("workspace", workspace_bytes) + Line("outputs", output_bytes) +
         Line("kv cache", kv.arena_bytes()) + Line("total", total_bytes()) +
         Line("a kv page", kv.page_bytes) + Line("packed", packed_bytes);
}

StatusOr<MemoryPlan> PlanMemory(const Program& program, const Target& target,
                                const ExecutorOptions& options) {
  PAGEMILL_ASSIGN_OR_RETURN(KernelSelection selection, SelectKernels(program, target, options));
  MemoryPlan plan;
  const WeightBytes weights = CountWeightBytes(program);
  const PackedBytes packed = CountPackedBytes(program, selection.kernels);
  plan.weights_bytes = weights.total_bytes - packed.stored_bytes + packed.packed_bytes;
  plan.packed_bytes = weights.copied_bytes + packed.packed_bytes;
  plan.activation_bytes = PlanActivations(program, target.ops, options.max_sizes()).arena_bytes;
  plan.workspace_bytes = selection.plan_bytes + selection.workspace_bytes;
  for (const Output& output : program.outputs()) {
    plan.output_bytes += program.value(output.value).Bytes(options.max_sizes());
  }
  plan.kv = selection.kv;
  return plan;
}

}  // namespace pagemill::program
