#include "cc/ops/mix_streams/mix_streams.h"

#include "sycl/ops/kernels.h"
#include "sycl/ops/launch.h"
#include "sycl/ops/mix_streams/mix_streams_params.h"

namespace pagemill::sycl {
namespace {

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const ops::mix_streams::Args args = ops::mix_streams::ToArgs(call);
  const int64_t rows = args.z.shape[0];
  LaunchItems(context, ActModule(args.x.dtype), "mix_streams_kernel",
              rows * args.mixes * args.width,
              MixStreamsParams{.x = RowsOf(args.x),
                               .weights = RowsOf(args.weights),
                               .y = args.y.rank == 0 ? Rows{} : RowsOf(args.y),
                               .z = RowsOf(args.z),
                               .rows = rows,
                               .streams = args.streams,
                               .mixes = args.mixes,
                               .width = args.width});
}

}  // namespace

const ops::Kernel kMixStreams = SyclKernel("mix_streams", Run);

}  // namespace pagemill::sycl
