// The emulated GPU, for tests of kernels: with warps of 32 and 64 lanes, and several orders of
// threads. It stands for one of AMD's in the third and fourth run.
#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "cc/base/status.h"
#include "cc/device/capabilities.h"
#include "cc/device/device.h"
#include "cuda/device/gpu_device.h"
#include "cuda/emulation/runtime.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

constexpr emulation::EmulatedGpuOptions kRuns[] = {
    {.warp_lanes = 32, .seed = 1, .has_cublas_lt = true},
    {.warp_lanes = 32, .seed = 2},
    {.warp_lanes = 64, .seed = 3},
    {.warp_lanes = 32, .seed = 4, .is_of_amd = true, .sums_in_turn = true}};

}  // namespace

device::Device& TheGpu() {
  static const std::unique_ptr<GpuDevice> gpu = [] {
    StatusOr<std::unique_ptr<GpuDevice>> opened = GpuDevice::Open(0);
    PAGEMILL_CHECK(opened.ok());
    return *std::move(opened);
  }();
  return *gpu;
}

device::Capabilities GpuCapabilities() {
  const StatusOr<std::unique_ptr<GpuDevice>> gpu = GpuDevice::Open(0);
  PAGEMILL_CHECK(gpu.ok());
  return {.kind = device::DeviceKind::kGpu, .gpu = (*gpu)->capabilities()};
}

void GpuConformance::SetUp() {
  emulation::EmulatedGpu::Configure(kRuns[static_cast<size_t>(GetParam())]);
}

INSTANTIATE_TEST_SUITE_P(Emulated, GpuConformance, ::testing::Range(0, 4),
                         [](const auto& info) {
                           const auto& run = kRuns[static_cast<size_t>(info.param)];
                           return std::string(run.is_of_amd ? "Amd" : "") + "Lanes" +
                                  std::to_string(run.warp_lanes) + "Seed" +
                                  std::to_string(run.seed);
                         });

}  // namespace pagemill::gpu
