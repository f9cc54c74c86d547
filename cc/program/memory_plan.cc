#include "cc/program/memory_plan.h"

#include <cinttypes>
#include <cstdio>

#include "cc/program/activation_plan.h"
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
         Line("workspace", workspace_bytes) + Line("logits", logits_bytes) +
         Line("kv cache", kv_bytes) + Line("total", total_bytes()) +
         Line("a kv block", kv_bytes_per_block) + Line("packed", packed_bytes);
}

StatusOr<MemoryPlan> PlanMemory(const Program& program, const Target& target,
                                const ExecutorOptions& options) {
  PM_ASSIGN_OR_RETURN(KernelSelection selection, SelectKernels(program, target, options));
  MemoryPlan plan;
  const WeightBytes weights = CountWeightBytes(program);
  const PackedBytes packed = CountPackedBytes(program, selection.rows);
  plan.weights_bytes = weights.total_bytes - packed.stored_bytes + packed.packed_bytes;
  plan.packed_bytes = weights.copied_bytes + packed.packed_bytes;
  plan.activation_bytes = PlanActivations(program, target.ops, options.max_sizes()).arena_bytes;
  plan.workspace_bytes = selection.workspace_bytes;
  for (ValueId id : program.outputs()) {
    plan.logits_bytes += program.value(id).Bytes(options.max_sizes());
  }
  for (const Value& v : program.values()) {
    if (v.kind != ValueKind::kCache) continue;
    plan.kv_bytes_per_block += CacheBlockBytes(v.cache, GeometryOf(options));
  }
  plan.kv_bytes = plan.kv_bytes_per_block * options.num_blocks;
  return plan;
}

}  // namespace pagemill::program
