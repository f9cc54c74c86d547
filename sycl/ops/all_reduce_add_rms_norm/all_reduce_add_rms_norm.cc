// `all_reduce`, then `add_rms_norm`.
#include "cc/ops/all_reduce_add_rms_norm/all_reduce_add_rms_norm.h"

#include "sycl/ops/add_rms_norm/add_rms_norm.h"
#include "sycl/ops/all_reduce/all_reduce.h"
#include "sycl/ops/all_reduce/gather_elements.h"
#include "sycl/ops/kernels.h"
#include "sycl/ops/launch.h"

namespace pagemill::sycl {
namespace {

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const ops::AllReduceThenNorm parts(call);
  RunAllReduce(parts.all_reduce(), context);
  RunAddRmsNorm(parts.add_rms_norm(), context);
}

}  // namespace

const ops::Kernel kAllReduceAddRmsNorm = SyclKernel("all_reduce_add_rms_norm", Run, AmongRanks);

}  // namespace pagemill::sycl
