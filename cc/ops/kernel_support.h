// File: cc/ops/kernel_support.h
// What rows of kernels answer to `supports` (op.h) where a CPU is all they need.
//
//   constexpr KernelRow kRows[] = {{"relu", "avx2", 20, OnAvx2, Run<ReluAvx2>},
//                                  {"relu", "reference", 0, OnEveryCpu, ReluReference}};
#ifndef PAGEMILL_CC_OPS_KERNEL_SUPPORT_H_
#define PAGEMILL_CC_OPS_KERNEL_SUPPORT_H_

#include "cc/device/capabilities.h"
#include "cc/ops/op.h"

namespace pagemill::ops {

inline bool OnEveryCpu(const device::Capabilities&, const OpCall&) { return true; }
inline bool OnAvx2(const device::Capabilities& caps, const OpCall&) { return caps.avx2; }
inline bool OnAvx512(const device::Capabilities& caps, const OpCall&) { return caps.avx512; }

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_KERNEL_SUPPORT_H_
