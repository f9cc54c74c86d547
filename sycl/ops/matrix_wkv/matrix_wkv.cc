#include "cc/ops/matrix_wkv/matrix_wkv.h"

#include "sycl/ops/kernels.h"
#include "sycl/ops/launch.h"
#include "sycl/ops/matrix_wkv/matrix_wkv_params.h"
#include "sycl/ops/states/state_sizes.h"

namespace pagemill::sycl {
namespace {

bool Supports(const device::Capabilities&, const ops::OpCall& call) {
  return ops::ToMatrixWkvArgs(call).keys <= kMaxStateRows;
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const ops::MatrixWkvArgs args = ops::ToMatrixWkvArgs(call);
  LaunchItems(context, StateModule(args.receptance.dtype), "matrix_wkv_kernel",
              args.batch->num_requests * args.heads * args.values * kLanes,
              MatrixWkvParams{
                  .receptance = RowsOf(args.receptance),
                  .decay = RowsOf(args.decay),
                  .key = RowsOf(args.key),
                  .rate = RowsOf(args.rate),
                  .value = RowsOf(args.value),
                  .y = RowsOf(args.y),
                  .own = RowsOf(args.own),
                  .shared_decay = args.decay_is_shared() ? args.decay.Data<const float>() : nullptr,
                  .bonus = args.bonus.Data<const float>(),
                  .removal = args.removal.Data<const float>(),
                  .boost = args.boost.Data<const float>(),
                  .states = RowsOf(args.state),
                  .batch = StepTokensOf(*args.batch),
                  .heads = static_cast<int32_t>(args.heads),
                  .keys = static_cast<int32_t>(args.keys),
                  .values = static_cast<int32_t>(args.values),
                  .decay_scale = ops::kWkvDecayScale,
                  .least_squares = ops::kWkvLeastSquares});
}

}  // namespace

const ops::Kernel kMatrixWkv = SyclKernel("matrix_wkv", Run, Supports);

}  // namespace pagemill::sycl
