// File: cuda/testing/gpu_under_test.h
// The emulated GPU with this tree's ops, for checks of whole programs
// (cc/program/device/testing/device_parity.h). Test code only.
//
//   const GpuUnderTest gpu;
//   CheckCloseLogits(text, DType::kF32, 1e-4, gpu.under_test);
#ifndef PAGEMILL_CUDA_TESTING_GPU_UNDER_TEST_H_
#define PAGEMILL_CUDA_TESTING_GPU_UNDER_TEST_H_

#include <memory>

#include "cc/device/capabilities.h"
#include "cc/ops/device_table.h"
#include "cc/program/device/testing/device_parity.h"
#include "cuda/device/gpu_device.h"
#include "cuda/emulation/runtime.h"
#include "cuda/ops_table.h"

namespace pagemill::gpu {

struct GpuUnderTest {
  std::unique_ptr<GpuDevice> device = *GpuDevice::Open(0);
  ops::DeviceTable table = ops::DeviceTable(GpuKernels());
  program::testing::DeviceUnderTest under_test = {
      .target = {.ops = table.definitions(),
                 .capabilities = {.kind = device::DeviceKind::kGpu,
                                  .gpu = device->capabilities()}},
      .device = *device,
      .num_replays = [] { return emulation::EmulatedGpu::memory().num_replays(); }};
};

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_TESTING_GPU_UNDER_TEST_H_
