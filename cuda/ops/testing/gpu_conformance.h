// File: cuda/ops/testing/gpu_conformance.h
// Runs an op's conformance body (cc/ops/conformance_bodies.h) on this tree's kernels: with warps of
// 32 and 64 lanes and several orders of threads in the emulation, once on a GPU.
//
//   TEST_P(GpuConformance, Add) {
//     CheckAddConformance(OnGpu<AddKernels>(ops::AddOp()), GpuCapabilities());
//   }
//
// One file of a test includes it. Test code only.
#ifndef PAGEMILL_CUDA_OPS_TESTING_GPU_CONFORMANCE_H_
#define PAGEMILL_CUDA_OPS_TESTING_GPU_CONFORMANCE_H_

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cc/device/capabilities.h"
#include "cc/ops/conformance.h"
#include "cc/ops/op.h"
#include "cc/ops/testing/device_conformance.h"
#include "cuda/device/gpu_device.h"
#include "cuda/gpu_runtime.h"

namespace pagemill::gpu {

inline GpuDevice& TheGpu() {
  static const std::unique_ptr<GpuDevice> gpu = [] {
    StatusOr<std::unique_ptr<GpuDevice>> opened = GpuDevice::Open(0);
    PAGEMILL_CHECK(opened.ok());
    return *std::move(opened);
  }();
  return *gpu;
}

inline ops::conformance::TestedDevice& TestedGpu() {
  static ops::conformance::TestedDevice tested(TheGpu());
  return tested;
}

// As they are now: the emulation's change with its options.
inline device::Capabilities GpuCapabilities() {
  const StatusOr<std::unique_ptr<GpuDevice>> gpu = GpuDevice::Open(0);
  PAGEMILL_CHECK(gpu.ok());
  return {.kind = device::DeviceKind::kGpu, .gpu = (*gpu)->capabilities()};
}

namespace internal {

inline constexpr size_t kMaxKernels = 8;  // of one op

template <std::span<const ops::Kernel> (*kKernels)(), size_t kIndex>
const ops::Kernel& KernelAt() {
  return kKernels()[kIndex];
}

template <std::span<const ops::Kernel> (*kKernels)(), size_t... kIndices>
constexpr auto KernelsOnHost(std::index_sequence<kIndices...>) {
  return std::array{&ops::conformance::OnHost<KernelAt<kKernels, kIndices>, TestedGpu>...};
}

}  // namespace internal

// The op with the kernels of `kKernels`, which copy operands to the GPU and back, and its
// reference.
template <std::span<const ops::Kernel> (*kKernels)()>
ops::OpDefinition OnGpu(const ops::OpDefinition& cpu) {
  static const std::vector<ops::Kernel> kernels = [&] {
    constexpr auto kOnHost =
        internal::KernelsOnHost<kKernels>(std::make_index_sequence<internal::kMaxKernels>());
    PAGEMILL_CHECK(kKernels().size() <= kOnHost.size());
    std::vector<ops::Kernel> made;
    for (size_t i = 0; i < kKernels().size(); ++i) made.push_back(kOnHost[i]());
    made.push_back(ops::conformance::ReferenceKernel(cpu));
    return made;
  }();
  ops::OpDefinition op = cpu;
  op.kernels = kernels;
  return op;
}

#if defined(__CUDACC__)
class GpuConformance : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Gpu, GpuConformance, ::testing::Values(0));
#else
class GpuConformance : public ::testing::TestWithParam<emulation::EmulatedGpuOptions> {
 protected:
  void SetUp() override { emulation::EmulatedGpu::Configure(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Emulated, GpuConformance,
                         ::testing::Values(emulation::EmulatedGpuOptions{32, 1},
                                           emulation::EmulatedGpuOptions{32, 2},
                                           emulation::EmulatedGpuOptions{64, 3}),
                         [](const auto& info) {
                           return "Lanes" + std::to_string(info.param.warp_lanes) + "Seed" +
                                  std::to_string(info.param.seed);
                         });
#endif

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_TESTING_GPU_CONFORMANCE_H_
