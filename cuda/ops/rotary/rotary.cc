#include "cc/ops/rotary/rotary.h"

#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/heads/heads_of_tokens.h"
#include "cuda/ops/kernels.h"
#include "cuda/ops/rotary/rotary_heads.h"

namespace pagemill::gpu {
namespace {

// Block (token, part of its heads).
template <typename T>
PAGEMILL_KERNEL Rotate(RotaryAngleParams angles, Rows<const int32_t> positions,
                       RotaryHeadParams heads, Rows<const T> q, Rows<const T> k, Rows<T> q_out,
                       Rows<T> k_out) {
  const int64_t t = BlockIndex().x;
  const TokenAngles token = AnglesOf(angles, positions[t]);
  ForHeadsOfWarp(heads.q_heads + heads.k_heads, [&](int head) {
    const bool is_q = head < heads.q_heads;
    const int64_t offset = int64_t{is_q ? head : head - heads.q_heads} * heads.head_dim;
    RotateHead(angles, token, heads.head_dim, (is_q ? q[t] : k[t]) + offset,
               (is_q ? q_out[t] : k_out[t]) + offset);
  });
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const ops::RotaryArgs args = ops::ToRotaryArgs(call);
  WithActType(args.q.dtype, [&]<typename T>(T) {
    Launch(*context.stream, HeadsOfTokens(args.q.shape[0], args.q.shape[1] + args.k.shape[1]),
           Rotate<T>, AngleParamsOf(args), RowsOf<const int32_t>(args.positions),
           RotaryHeadParams::Of(args), RowsOf<const T>(args.q), RowsOf<const T>(args.k),
           RowsOf<T>(args.q_out), RowsOf<T>(args.k_out));
  });
}

constexpr ops::Kernel kKernels[] = {{"rotary", "gpu", 10, OnEveryGpu, Run}};

}  // namespace

std::span<const ops::Kernel> RotaryKernels() { return kKernels; }

}  // namespace pagemill::gpu
