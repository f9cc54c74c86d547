#include "cc/ops/op.h"

namespace pagemill::ops {

StatusOr<const OpDefinition*> FindOp(std::span<const OpDefinition> ops, std::string_view name) {
  for (const OpDefinition& op : ops) {
    if (op.op == name) return &op;
  }
  return Unimplemented("op '" + std::string(name) + "' has no kernels on this device");
}

StatusOr<const Kernel*> ChooseKernel(const OpDefinition& op, const device::Capabilities& caps,
                                     const OpCall& call, const KernelLimits& limits) {
  const Kernel* best = nullptr;
  for (const Kernel& kernel : op.kernels) {
    if (!limits.name.empty() && kernel.name != limits.name) continue;
    if (kernel.activations > limits.activations) continue;
    if (limits.deterministic && kernel.varies_with_batch) continue;
    // `supports` may cost more than comparing priorities.
    if (best != nullptr && kernel.priority < best->priority) continue;
    if (!kernel.supports(caps, call)) continue;
    if (best == nullptr || kernel.priority > best->priority ||
        (kernel.priority == best->priority && kernel.name < best->name)) {
      best = &kernel;
    }
  }
  if (best == nullptr) {
    return Unimplemented("no kernel of op '" + std::string(op.op) +
                         "' supports these operands on this machine");
  }
  return best;
}

}  // namespace pagemill::ops
