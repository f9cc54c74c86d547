#include "cc/ops/pool/pool.h"

#include "sycl/ops/kernels.h"
#include "sycl/ops/launch.h"
#include "sycl/ops/pool/pool_params.h"

namespace pagemill::sycl {
namespace {

constexpr int32_t kGroupSize = 128;

PooledTokens TokensOf(ops::PoolKind kind) {
  switch (kind) {
    case ops::PoolKind::kFirst:
      return PooledTokens::kFirst;
    case ops::PoolKind::kLast:
      return PooledTokens::kLast;
    case ops::PoolKind::kAll:
      return PooledTokens::kAll;
    default:
      return PooledTokens::kMean;
  }
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const ops::PoolArgs args = ops::ToPoolArgs(call);
  LaunchGroups(context, ActModule(args.x.dtype), "pool_kernel", args.y.shape[0], kGroupSize,
               PoolParams{.x = RowsOf(args.x),
                          .y = RowsOf(args.y),
                          .query_start = args.batch->query_start,
                          .width = args.x.RowElements(),
                          .tokens = TokensOf(args.kind),
                          .normalize = args.normalize,
                          .f32 = args.y.dtype == DType::kF32});
}

// Not the largest logits of sparse vectors.
bool Supports(const device::Capabilities&, const ops::OpCall& call) {
  return ops::ToPoolArgs(call).kind != ops::PoolKind::kSplade;
}

}  // namespace

const ops::Kernel kPool = SyclKernel("pool", Run, Supports);

}  // namespace pagemill::sycl
