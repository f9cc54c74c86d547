// File: cuda/ops/gpu_support.h
// `Kernel::supports` functions (cc/ops/op.h) of this tree.
#ifndef PAGEMILL_CUDA_OPS_GPU_SUPPORT_H_
#define PAGEMILL_CUDA_OPS_GPU_SUPPORT_H_

#include "cc/device/capabilities.h"
#include "cc/ops/op.h"
#include "cuda/device/peer_group.h"
#include "cuda/gpu_runtime.h"

namespace pagemill::gpu {

// For kernels that take every call that the op's check accepts.
inline bool OnEveryGpu(const device::Capabilities& caps, const ops::OpCall&) {
  return caps.kind == device::DeviceKind::kGpu;
}

// For collectives of the tensor axis, whose ranks a stream joins.
inline bool AmongPeers(const device::Capabilities& caps, const ops::OpCall& call) {
  return caps.kind == device::DeviceKind::kGpu && call.attributes->GetInt("axis", 0) == 0 &&
         call.attributes->GetInt("ranks", 1) <= kMaxPeers;
}

// The GPU has the words for tensor cores as instructions, for bf16 and int8.
inline bool HasTensorCores(const device::Capabilities& caps) {
  return !GpusAreOfAmd() && caps.gpu.compute_major >= 8;
}

// The GPU has the words of gpu_matrix_cores.h for warps of `lanes`, in bf16: all AMD GPUs that
// kernels are compiled for.
inline bool HasMatrixCores(const device::Capabilities& caps, int lanes) {
  return GpusAreOfAmd() && caps.gpu.warp_lanes == lanes;
}

// Likewise in e4m3: gfx942, gfx950 and gfx12.
inline bool HasF8MatrixCores(const device::Capabilities& caps, int lanes) {
  const auto& gpu = caps.gpu;
  return HasMatrixCores(caps, lanes) &&
         (lanes == 64 ? gpu.compute_minor >= 4 : gpu.compute_major >= 12);
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_GPU_SUPPORT_H_
