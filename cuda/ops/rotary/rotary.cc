#include "cc/ops/rotary/rotary.h"

#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/kernels.h"
#include "cuda/ops/rotary/rotary_heads.h"

namespace pagemill::gpu {
namespace {

constexpr int64_t kMaxThreads = 256;

template <typename T>
PAGEMILL_KERNEL Rotate(RotaryAngleParams angles, Rows<const int32_t> positions,
                       RotaryHeadParams heads, Rows<const T> q, Rows<const T> k, Rows<T> q_out,
                       Rows<T> k_out) {
  const int64_t t = BlockIndex().x;
  RotateToken(angles, positions[t], heads, q[t], k[t], q_out[t], k_out[t]);
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const ops::RotaryArgs args = ops::ToRotaryArgs(call);
  WithActType(args.q.dtype, [&]<typename T>(T) {
    Launch(*context.stream,
           {.blocks = {static_cast<uint32_t>(args.q.shape[0])}, .threads = {BlockThreads(args.q.RowElements() + args.k.RowElements(), 4, kMaxThreads)}}, Rotate<T>,
           AngleParamsOf(args), RowsOf<const int32_t>(args.positions),
           RotaryHeadParams{args.q.shape[1], args.k.shape[1], args.q.shape[2]},
           RowsOf<const T>(args.q), RowsOf<const T>(args.k), RowsOf<T>(args.q_out),
           RowsOf<T>(args.k_out));
  });
}

constexpr ops::Kernel kKernels[] = {{"rotary", "gpu", 10, OnEveryGpu, Run}};

}  // namespace

std::span<const ops::Kernel> RotaryKernels() { return kKernels; }

}  // namespace pagemill::gpu
