#include "cc/ops/apply_adapter/apply_adapter.h"

#include <algorithm>

#include "sycl/ops/apply_adapter/apply_adapter_params.h"
#include "sycl/ops/kernels.h"
#include "sycl/ops/launch.h"

namespace pagemill::sycl {
namespace {

constexpr int64_t kRowsAtATime = 1 << 14;  // bounds the workspace

ChoiceRows ChoicesOf(const TensorView& view, int64_t size) {
  return {RowsOf(view), view.RowElements() > size ? size : 0};
}

void RunLayer(const ops::ApplyAdapterArgs& args, const ops::AdaptedLayer& layer,
              ops::KernelContext& context) {
  const bool ids = args.x.dtype == DType::kI32;
  const KernelModule& module = ActModule(ids ? layer.y.dtype : args.x.dtype);
  ApplyAdapterParams params = {.table = layer.table,
                               .slots = args.slots,
                               .rows = args.rows,
                               .experts = args.experts,
                               .choices = args.choices,
                               .num_experts = args.num_experts,
                               .x = ChoicesOf(args.x, ids ? 1 : args.in),
                               .ids = ids,
                               .y = ChoicesOf(layer.y, layer.out),
                               .z = ChoicesOf(layer.z, layer.out),
                               .f32_result = layer.y.dtype == DType::kF32,
                               .low = reinterpret_cast<float*>(context.workspace.data()),
                               .in = args.in,
                               .out = layer.out};
  for (int64_t first = 0; first < args.num_rows; first += kRowsAtATime) {
    params.first = first;
    params.count = std::min(kRowsAtATime, args.num_rows - first);
    if (args.slots != nullptr) {
      LaunchGroups(context, module, "lower_row_kernel", params.count, kAdapterGroupSize, params);
    }
    LaunchItems(context, module, "raise_row_kernel", params.count * layer.out, params);
  }
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const ops::ApplyAdapterArgs args = ops::ToApplyAdapterArgs(call);
  for (size_t i = 0; i < args.num_layers; ++i) {
    const ops::AdaptedLayer& layer = args.layers[i];
    if (args.slots == nullptr && layer.z.data == layer.y.data) continue;
    RunLayer(args, layer, context);
  }
}

int64_t WorkspaceBytes(const ops::OpCall& call, int32_t) {
  return std::min(kRowsAtATime, ops::ToApplyAdapterArgs(call).num_rows) *
         RowBytes(DType::kF32, ops::kMaxAdapterRank);
}

}  // namespace

const ops::Kernel kApplyAdapter = {.op = "apply_adapter",
                                   .name = "sycl",
                                   .priority = 10,
                                   .supports = Always,
                                   .run = Run,
                                   .workspace_bytes = WorkspaceBytes};

}  // namespace pagemill::sycl
