#include "cc/ops/depthwise_conv/depthwise_conv.h"

#include "sycl/ops/depthwise_conv/depthwise_conv_params.h"
#include "sycl/ops/kernels.h"
#include "sycl/ops/launch.h"

namespace pagemill::sycl {
namespace {

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const ops::DepthwiseConvArgs args = ops::ToDepthwiseConvArgs(call, context.plan);
  LaunchItems(
      context, ActModule(args.x.dtype), "depthwise_conv_kernel",
      args.tokens * args.results * args.channels,
      DepthwiseConvParams{.x = RowsOf(args.x),
                          .y = RowsOf(args.y),
                          .w = args.w.Data<const float>(),
                          .bias = args.bias.rank > 0 ? args.bias.Data<const float>() : nullptr,
                          .listed = args.listed,
                          .tokens = args.tokens,
                          .results = args.results,
                          .positions = args.positions,
                          .channels = args.channels,
                          .taps = args.taps,
                          .is_indexed = args.is_indexed});
}

}  // namespace

constinit const ops::Kernel kDepthwiseConv = [] {
  ops::Kernel kernel = SyclKernel("depthwise_conv", Run);
  kernel.plan = &ops::kDepthwiseRowsPlan;
  return kernel;
}();

}  // namespace pagemill::sycl
