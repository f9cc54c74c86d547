// The reference of `add_rms_norm`: the references of the two ops that it fuses, so that the norm is
// that of the stored sum.
#include <algorithm>

#include "cc/ops/add/add.h"
#include "cc/ops/add_rms_norm/add_rms_norm.h"
#include "cc/ops/rms_norm/rms_norm.h"
#include "cc/ops/widened/widened.h"

namespace pagemill::ops {
namespace {

// The operands of the call, ordered as in the single ops.
struct Parts {
  explicit Parts(const OpCall& call)
      : add_inputs{call.inputs[0], call.inputs[1]},
        norm_inputs{call.outputs[1], call.inputs[2]},
        add{.inputs = add_inputs,
            .outputs = call.outputs.subspan(1, 1),
            .attributes = call.attributes},
        norm{.inputs = norm_inputs,
             .outputs = call.outputs.first(1),
             .attributes = call.attributes} {}
  Parts(const Parts&) = delete;

  TensorView add_inputs[2], norm_inputs[2];
  OpCall add, norm;
};

}  // namespace

void AddRmsNormReference(const OpCall& call, KernelContext& context) {
  const Parts parts(call);
  RunWidened(kAddReference, parts.add, context);
  RunWidened(kRmsNormReference, parts.norm, context);
}

int64_t AddRmsNormReferenceWorkspaceBytes(const OpCall& call, int32_t num_threads) {
  const Parts parts(call);
  return std::max(WidenedWorkspaceBytes(kAddReference, parts.add, num_threads),
                  WidenedWorkspaceBytes(kRmsNormReference, parts.norm, num_threads));
}

}  // namespace pagemill::ops
