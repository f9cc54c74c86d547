#include "cc/ops/compress_tokens/compress_tokens.h"

#include "sycl/ops/compress_tokens/compress_tokens_params.h"
#include "sycl/ops/kernels.h"
#include "sycl/ops/launch.h"

namespace pagemill::sycl {
namespace {

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const ops::CompressTokensArgs args = ops::ToCompressTokensArgs(call);
  LaunchItems(context, StateModule(args.x.dtype), "compress_tokens_kernel",
              args.batch->num_requests * args.channels,
              CompressTokensParams{.x = RowsOf(args.x),
                                   .gate = RowsOf(args.gate),
                                   .bias = RowsOf(args.bias),
                                   .states = RowsOf(args.state),
                                   .y = RowsOf(args.y),
                                   .batch = StepTokensOf(*args.batch),
                                   .window = static_cast<int32_t>(args.window),
                                   .parts = static_cast<int32_t>(args.parts),
                                   .channels = args.channels});
}

}  // namespace

const ops::Kernel kCompressTokens = SyclKernel("compress_tokens", Run);

}  // namespace pagemill::sycl
