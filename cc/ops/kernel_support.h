// File: cc/ops/kernel_support.h
// `Kernel::supports` functions (op.h) for kernels that only require CPU features.
//
//   constexpr Kernel kKernels[] = {{"relu", "avx2", 20, OnAvx2, Run<ReluAvx2>},
//                                  {"relu", "portable", 10, OnEveryCpu, Run<ReluPortable>},
//                                  WidenedReference<&kReference>("relu")};     // widened.h
//
// These kernels compute on f32 activations, except those that are InEveryType.
#ifndef PAGEMILL_CC_OPS_KERNEL_SUPPORT_H_
#define PAGEMILL_CC_OPS_KERNEL_SUPPORT_H_

#include "cc/device/capabilities.h"
#include "cc/ops/op.h"

namespace pagemill::ops {

// True for the 16-bit types that `act` may stand for.
inline bool IsNarrow(DType dtype) { return dtype == DType::kBF16 || dtype == DType::kF16; }

// True if the call's activations are f32. They have one type (OperandCheck), and one of them is the
// first input or the first output of every op that has any.
inline bool HasF32Activations(const OpCall& call) {
  return (call.inputs.empty() || !IsNarrow(call.inputs[0].dtype)) &&
         (call.outputs.empty() || !IsNarrow(call.outputs[0].dtype));
}

// For kernels that take activations of any type, on every CPU.
inline bool InEveryType(const device::Capabilities&, const OpCall&) { return true; }

inline bool OnEveryCpu(const device::Capabilities&, const OpCall& call) {
  return HasF32Activations(call);
}
inline bool OnAvx2(const device::Capabilities& caps, const OpCall& call) {
  return caps.cpu.avx2 && HasF32Activations(call);
}
inline bool OnAvx512(const device::Capabilities& caps, const OpCall& call) {
  return caps.cpu.avx512 && HasF32Activations(call);
}

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_KERNEL_SUPPORT_H_
