// `rotary`, then `kv_write` of the rotated keys.
#include "cc/ops/rotary_kv_write/rotary_kv_write.h"

#include "cc/ops/kv_write/key_layout.h"
#include "sycl/ops/kernels.h"
#include "sycl/ops/kv_write/kv_write.h"
#include "sycl/ops/launch.h"
#include "sycl/ops/rotary/rotary.h"

namespace pagemill::sycl {
namespace {

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const TensorView kv[] = {call.outputs[1], call.inputs[4], call.inputs[5]};
  RunRotary({.inputs = call.inputs.first(4),
             .outputs = call.outputs,
             .attributes = call.attributes,
             .batch = call.batch},
            context);
  RunKvWrite(
      {.inputs = kv, .outputs = {}, .attributes = call.attributes, .batch = call.batch}, context);
}

}  // namespace

const ops::Kernel kRotaryKvWrite =
    SyclKernel("rotary_kv_write", Run, ops::WithKeysInColumns<HasCacheType<5>>);

}  // namespace pagemill::sycl
