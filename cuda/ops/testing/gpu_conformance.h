// File: cuda/ops/testing/gpu_conformance.h
// Runs an op's conformance body (cc/ops/conformance_bodies.h) on this tree's kernels.
//
//   TEST_P(GpuConformance, Add) {
//     CheckAddConformance(OnGpu<AddKernels>(ops::AddOp()), GpuCapabilities());
//   }
//
// What a test is linked with says where the kernels run: `:emulated_gpu`, with warps of 32 and 64
// lanes and several orders of threads, or cuda/testing/plugin_conformance.cc, once, on the first
// device of a plugin. Test code only.
#ifndef PAGEMILL_CUDA_OPS_TESTING_GPU_CONFORMANCE_H_
#define PAGEMILL_CUDA_OPS_TESTING_GPU_CONFORMANCE_H_

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "cc/device/capabilities.h"
#include "cc/device/device.h"
#include "cc/ops/conformance.h"
#include "cc/ops/op.h"
#include "cc/ops/testing/device_conformance.h"

namespace pagemill::gpu {

// Defined by what the test is linked with.
device::Device& TheGpu();
device::Capabilities GpuCapabilities();  // as they are now: the emulation's differ among runs

inline ops::conformance::TestedDevice& TestedGpu() {
  static ops::conformance::TestedDevice tested(TheGpu());
  return tested;
}

namespace internal {

inline constexpr size_t kMaxKernels = 20;  // of one op

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

// A test runs once for each way to run kernels, by its number.
class GpuConformance : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override;
};

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_TESTING_GPU_CONFORMANCE_H_
