#include "cc/ops/widened/widened.h"

#include <array>
#include <span>

#include "cc/base/status.h"
#include "cc/tensor/to_float.h"

namespace pagemill::ops {
namespace {

constexpr size_t kMaxOperands = 32;  // inputs, as in the masks of op.h; also the limit of outputs
constexpr int64_t kAlignment = 64;   // of widened operands, like that of a workspace

bool IsWidened(const F32Kernel& kernel, const OpCall& call, size_t input) {
  return (kernel.act_inputs >> input & 1) != 0 && IsNarrow(call.inputs[input].dtype);
}

int64_t WideBytes(const TensorView& view) {
  const int64_t bytes = RowBytes(DType::kF32, view.Elements());
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// A dense f32 view at `data`.
TensorView WideView(TensorView view, std::byte* data) {
  view.data = data;
  view.dtype = DType::kF32;
  view.row_stride_bytes = RowBytes(DType::kF32, view.RowElements());
  return view;
}

}  // namespace

void RunWidened(const F32Kernel& kernel, const OpCall& call, KernelContext& context) {
  PAGEMILL_CHECK(call.inputs.size() <= kMaxOperands && call.outputs.size() <= kMaxOperands);
  std::array<TensorView, kMaxOperands> inputs, outputs;
  KernelContext rest = context;
  const auto widen = [&rest](const TensorView& view) {
    const TensorView wide = WideView(view, rest.workspace.data());
    rest.workspace = rest.workspace.subspan(static_cast<size_t>(WideBytes(view)));
    return wide;
  };
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    inputs[i] = call.inputs[i];
    if (!IsWidened(kernel, call, i)) continue;
    inputs[i] = widen(call.inputs[i]);
    ToFloat(call.inputs[i], inputs[i].Data<float>());
  }
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    outputs[i] = IsNarrow(call.outputs[i].dtype) ? widen(call.outputs[i]) : call.outputs[i];
  }
  OpCall wide = call;
  wide.inputs = std::span(inputs).first(call.inputs.size());
  wide.outputs = std::span(outputs).first(call.outputs.size());
  kernel.run(wide, rest);
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    if (IsNarrow(call.outputs[i].dtype)) FromFloat(outputs[i].Data<float>(), call.outputs[i]);
  }
}

int64_t WidenedWorkspaceBytes(const F32Kernel& kernel, const OpCall& call, int32_t num_threads) {
  int64_t bytes = kernel.workspace_bytes == nullptr ? 0 : kernel.workspace_bytes(call, num_threads);
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    if (IsWidened(kernel, call, i)) bytes += WideBytes(call.inputs[i]);
  }
  for (const TensorView& output : call.outputs) {
    if (IsNarrow(output.dtype)) bytes += WideBytes(output);
  }
  return bytes;
}

}  // namespace pagemill::ops
