// File: cc/ops/kernel_support.h
// What kernels answer to `supports` (op.h) if a CPU is all they need.
//
//   constexpr KernelRow kRows[] = {{"relu", "avx2", 20, OnAvx2, Run<ReluAvx2>},
//                                  {"relu", "portable", 10, OnEveryCpu, Run<ReluPortable>},
//                                  WidenedReference<&kReference>("relu")};     // widened.h
//
// Kernels compute on activations in f32, except those that say InEveryType.
#ifndef PAGEMILL_CC_OPS_KERNEL_SUPPORT_H_
#define PAGEMILL_CC_OPS_KERNEL_SUPPORT_H_

#include "cc/device/capabilities.h"
#include "cc/ops/op.h"

namespace pagemill::ops {

// Is a value of this type stored in 16 bits, if it is an activation?
inline bool IsNarrow(DType dtype) { return dtype == DType::kBF16 || dtype == DType::kF16; }

// Is `act` f32 in this call? An op that has activations has one as its first input or output, and
// its check has made sure that they agree.
inline bool HasF32Activations(const OpCall& call) {
  return (call.inputs.empty() || !IsNarrow(call.inputs[0].dtype)) &&
         (call.outputs.empty() || !IsNarrow(call.outputs[0].dtype));
}

// Of kernels that read and write activations of any type.
inline bool InEveryType(const device::Capabilities&, const OpCall&) { return true; }

inline bool OnEveryCpu(const device::Capabilities&, const OpCall& call) {
  return HasF32Activations(call);
}
inline bool OnAvx2(const device::Capabilities& caps, const OpCall& call) {
  return caps.avx2 && HasF32Activations(call);
}
inline bool OnAvx512(const device::Capabilities& caps, const OpCall& call) {
  return caps.avx512 && HasF32Activations(call);
}

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_KERNEL_SUPPORT_H_
