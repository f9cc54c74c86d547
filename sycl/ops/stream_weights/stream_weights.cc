#include "cc/ops/stream_weights/stream_weights.h"

#include "sycl/ops/kernels.h"
#include "sycl/ops/launch.h"
#include "sycl/ops/stream_weights/stream_weights_params.h"

namespace pagemill::sycl {
namespace {

static_assert(ops::kMaxStreams == kMaxWeightedStreams);

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const TensorView& mixes = call.inputs[0];
  const TensorView& before = call.outputs[0];
  LaunchItems(
      context, TokenModule(), "stream_weights_kernel", mixes.shape[0],
      StreamWeightsParams{
          .mixes = RowsOf(mixes),
          .base = call.inputs[1].Data<const float>(),
          .scale = call.inputs[2].Data<const float>(),
          .before = RowsOf(before),
          .after = call.outputs.size() > 1 ? RowsOf(call.outputs[1]) : Rows{},
          .rows = mixes.shape[0],
          .streams = static_cast<int32_t>(before.shape[1]),
          .iterations = static_cast<int32_t>(call.attributes->GetInt("iterations", 1)),
          .eps = static_cast<float>(call.attributes->Get("eps", 0))});
}

}  // namespace

const ops::Kernel kStreamWeights = SyclKernel("stream_weights", Run);

}  // namespace pagemill::sycl
