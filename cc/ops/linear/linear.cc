#include "cc/ops/linear/linear.h"

#include <string>

#include "cc/ops/block_format/block_format.h"
#include "cc/ops/linear/kernel_set.h"
#include "cc/ops/linear/linear_driver.h"

namespace pagemill::ops {
namespace {

std::string Number(int64_t value) { return std::to_string(value); }

Status CheckLinear(const OpCall& call) {
  if (call.inputs.size() < 2 || call.inputs.size() > 3 || call.outputs.size() != 1) {
    return InvalidArgument("linear: takes x, W and an optional bias, and returns y");
  }
  const TensorView& x = call.inputs[0];
  const TensorView& w = call.inputs[1];
  const TensorView& y = call.outputs[0];
  if (x.rank < 2 || x.dtype != DType::kF32) {
    return InvalidArgument("linear: x must be f32 of rank 2 or more, got " +
                           std::string(Info(x.dtype).name) + " of rank " + Number(x.rank));
  }
  if (w.rank != 2 || !IsWeightDType(w.dtype)) {
    return InvalidArgument("linear: W must be a weight of rank 2, got " +
                           std::string(Info(w.dtype).name) + " of rank " + Number(w.rank));
  }
  if (w.shape[1] % Info(w.dtype).block_elements != 0) {
    return InvalidArgument("linear: rows of W have " + Number(w.shape[1]) +
                           " elements, no multiple of the block of " +
                           Number(Info(w.dtype).block_elements) + " of " +
                           std::string(Info(w.dtype).name));
  }
  if (x.RowElements() != w.shape[1]) {
    return InvalidArgument("linear: rows of x have " + Number(x.RowElements()) +
                           " elements where rows of W have " + Number(w.shape[1]));
  }
  if (y.rank < 2 || y.dtype != DType::kF32 || y.RowElements() != w.shape[0]) {
    return InvalidArgument("linear: y must be f32 with rows of " + Number(w.shape[0]) +
                           " elements (rows of W), got " + std::string(Info(y.dtype).name) +
                           " with rows of " + Number(y.RowElements()));
  }
  if (y.shape[0] != x.shape[0]) {
    return InvalidArgument("linear: y has " + Number(y.shape[0]) + " rows where x has " +
                           Number(x.shape[0]));
  }
  if (call.inputs.size() == 2 || call.inputs[2].rank == 0) return OkStatus();
  const TensorView& bias = call.inputs[2];
  if (bias.rank != 1 || bias.dtype != DType::kF32 || bias.shape[0] != w.shape[0]) {
    return InvalidArgument("linear: bias must be f32 [" + Number(w.shape[0]) + "], got " +
                           std::string(Info(bias.dtype).name) + " of rank " + Number(bias.rank) +
                           " and length " + Number(bias.shape[0]));
  }
  return OkStatus();
}

bool Always(const device::Capabilities&, const OpCall&) { return true; }

template <const linear::KernelSet* kKernels>
void Run(const OpCall& call, KernelContext& context) {
  linear::RunKernelSet(*kKernels, call, context);
}

constexpr KernelRow kRows[] = {
#if defined(__x86_64__)
    {"linear", "avx512", 30, [](const device::Capabilities& caps, const OpCall&) {
       return caps.avx512;
     }, Run<&linear::kAvx512Kernels>, linear::DriverWorkspaceBytes},
    {"linear", "avx2", 20, [](const device::Capabilities& caps, const OpCall&) {
       return caps.avx2;
     }, Run<&linear::kAvx2Kernels>, linear::DriverWorkspaceBytes},
#endif
    {"linear", "portable", 10, Always, Run<&linear::kPortableKernels>,
     linear::DriverWorkspaceBytes},
    {"linear", "reference", 0, Always, linear::RunReference, linear::ReferenceWorkspaceBytes},
};

constexpr OpDefinition kDefinition{"linear", CheckLinear, kRows};

}  // namespace

const OpDefinition& LinearOp() { return kDefinition; }

}  // namespace pagemill::ops
