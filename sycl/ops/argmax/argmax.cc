#include "cc/ops/argmax/argmax.h"

#include "sycl/ops/argmax/argmax_params.h"
#include "sycl/ops/kernels.h"
#include "sycl/ops/launch.h"

namespace pagemill::sycl {
namespace {

constexpr int32_t kGroupSize = 256;

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const TensorView& x = call.inputs[0];
  LaunchGroups(context, TokenModule(), "argmax_kernel", x.shape[0], kGroupSize,
               ArgmaxParams{.x = RowsOf(x),
                            .columns = call.outputs[0].Data<int32_t>(),
                            .values = call.outputs[1].Data<float>(),
                            .width = static_cast<int32_t>(x.shape[1])});
}

}  // namespace

const ops::Kernel kArgmax = SyclKernel("argmax", Run);

}  // namespace pagemill::sycl
