#include "cc/ops/rotary/rotary.h"

#include "sycl/ops/kernels.h"
#include "sycl/ops/launch.h"
#include "sycl/ops/rotary/rotary.h"
#include "sycl/ops/rotary/rotary_params.h"

namespace pagemill::sycl {

void RunRotary(const ops::OpCall& call, ops::KernelContext& context) {
  const ops::RotaryArgs args = ops::ToRotaryArgs(call);
  const ops::RotaryFrequencies frequencies = ops::FrequenciesOf(args);
  const int64_t tokens = args.q.shape[0], head_dim = args.q.shape[2];
  const int64_t heads = args.q.shape[1] + args.k.shape[1];
  LaunchItems(
      context, ActModule(args.q.dtype), "rotary_kernel",
      tokens * heads * (head_dim - frequencies.pairs),
      RotaryParams{.q = RowsOf(args.q),
                   .k = RowsOf(args.k),
                   .q_out = RowsOf(args.q_out),
                   .k_out = RowsOf(args.k_out),
                   .positions = RowsOf(args.positions),
                   .frequencies = {const_cast<float*>(frequencies.inv_freq),
                                   frequencies.dim_stride * static_cast<int64_t>(sizeof(float))},
                   .tokens = tokens,
                   .q_heads = args.q.shape[1],
                   .k_heads = args.k.shape[1],
                   .head_dim = head_dim,
                   .dims = frequencies.dims,
                   .pairs = frequencies.pairs,
                   .interleaved = args.interleaved,
                   .mscale = args.mscale,
                   .begin = args.begin,
                   .offset = args.offset});
}

const ops::Kernel kRotary = SyclKernel("rotary", RunRotary);

}  // namespace pagemill::sycl
