#include "cc/ops/causal_conv/causal_conv.h"

#include "sycl/ops/causal_conv/causal_conv_params.h"
#include "sycl/ops/kernels.h"
#include "sycl/ops/launch.h"

namespace pagemill::sycl {
namespace {

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const ops::CausalConvArgs args = ops::ToCausalConvArgs(call);
  const ops::BatchView& batch = *args.batch;
  const CausalConvParams params = {
      .x = RowsOf(args.x),
      .y = RowsOf(args.y),
      .w = args.w.Data<const float>(),
      .bias = args.bias.rank > 0 ? args.bias.Data<const float>() : nullptr,
      .states = RowsOf(args.state),
      .query_start = batch.query_start,
      .seq_lens = batch.seq_lens,
      .block_table = batch.block_table,
      .block_table_stride = batch.block_table_stride,
      .block_size = batch.block_size,
      .recent_states = batch.recent_states,
      .requests = batch.num_requests,
      .taps = static_cast<int32_t>(args.taps),
      .rows = args.x.shape[0],
      .channels = args.channels,
      .silu = args.kind == ops::ActivationKind::kSilu};
  const KernelModule& module = ActModule(args.x.dtype);
  LaunchItems(context, module, "causal_conv_kernel", params.rows * params.channels, params);
  LaunchItems(context, module, "store_conv_states_kernel", params.requests * params.channels,
              params);
}

}  // namespace

const ops::Kernel kCausalConv = SyclKernel("causal_conv", Run);

}  // namespace pagemill::sycl
