// File: cc/ops/linear/onednn/onednn_kernels.h
// oneDNN kernels of `linear`: "onednn" for bf16 weights, or none if the library is not built in
// (`--config=onednn`, x86-64). It is chosen by name only; README.md has the measurements.
#ifndef PAGEMILL_CC_OPS_LINEAR_ONEDNN_ONEDNN_KERNELS_H_
#define PAGEMILL_CC_OPS_LINEAR_ONEDNN_ONEDNN_KERNELS_H_

#include <span>

#include "cc/ops/op.h"

namespace pagemill::ops::linear {

std::span<const Kernel> OnednnKernels();

}  // namespace pagemill::ops::linear

#endif  // PAGEMILL_CC_OPS_LINEAR_ONEDNN_ONEDNN_KERNELS_H_
