#include "cc/ops/op.h"

namespace pagemill::ops {

StatusOr<const OpDefinition*> FindOp(std::span<const OpDefinition> ops, std::string_view name) {
  for (const OpDefinition& op : ops) {
    if (op.op == name) return &op;
  }
  return Unimplemented("op '" + std::string(name) + "' has no kernels on this device");
}

StatusOr<const KernelRow*> ChooseKernel(const OpDefinition& op, const device::Capabilities& caps,
                                        const OpCall& call, const KernelLimits& limits) {
  const KernelRow* best = nullptr;
  for (const KernelRow& row : op.rows) {
    if (!limits.name.empty() && row.name != limits.name) continue;
    if (row.activations > limits.activations) continue;
    // Asking a row whether it could run may cost more than comparing.
    if (best != nullptr && row.priority < best->priority) continue;
    if (!row.supports(caps, call)) continue;
    if (best == nullptr || row.priority > best->priority ||
        (row.priority == best->priority && row.name < best->name)) {
      best = &row;
    }
  }
  if (best == nullptr) {
    return Unimplemented("no kernel of op '" + std::string(op.op) +
                         "' supports these operands on this machine");
  }
  return best;
}

}  // namespace pagemill::ops
