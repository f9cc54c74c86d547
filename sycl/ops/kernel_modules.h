// File: sycl/ops/kernel_modules.h
// The source text of all kernels of this tree, as modules that a device compiles when it needs
// them.
//
//   LaunchKernel(stream, {.module = ActModule(DType::kBF16), .kernel = "add_kernel", ...}, params);
//
// A program has one type of activations, so a device compiles two modules for most programs.
#ifndef PAGEMILL_SYCL_OPS_KERNEL_MODULES_H_
#define PAGEMILL_SYCL_OPS_KERNEL_MODULES_H_

#include <vector>

#include "cc/tensor/dtype.h"
#include "sycl/device/sycl_stream.h"

namespace pagemill::sycl {

// Kernels that read or write activations of this type: f32, bf16 or f16.
const KernelModule& ActModule(DType act);
// Those that only some architectures need: recurrent states, and latents with their attention.
const KernelModule& StateModule(DType act);
const KernelModule& LatentModule(DType act);
// Kernels of types that do not depend on it: those that choose tokens and experts.
const KernelModule& TokenModule();

// All of them.
std::vector<const KernelModule*> AllModules();

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_KERNEL_MODULES_H_
