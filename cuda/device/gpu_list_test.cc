// The list of GPUs, on the emulated ones.
#include "cuda/device/gpu_list.h"

#include <gtest/gtest.h>

#include <memory>

#include "cuda/device/gpu_device.h"
#include "cuda/emulation/cublas_lt.h"
#include "cuda/emulation/runtime.h"

namespace pagemill::gpu {
namespace {

TEST(GpuList, DescribesEachGpu) {
  const StatusOr<std::vector<FoundGpu>> found = FindGpus();
  ASSERT_TRUE(found.ok()) << found.status().ToString();
  ASSERT_EQ(found->size(), size_t{emulation::EmulatedGpu::kDevices});
  EXPECT_EQ((*found)[0].name, "emulated GPU");
  EXPECT_EQ((*found)[0].architecture, "sm_90");
  EXPECT_GT((*found)[0].memory_bytes, 0);
}

TEST(GpuList, ItsGpuRunsKernels) {
  const std::unique_ptr<GpuDevice> gpu = *GpuDevice::Open(0);
  const Status status = CheckRunsKernels(*gpu, (*FindGpus())[0]);
  EXPECT_TRUE(status.ok()) << status.ToString();
}

TEST(GpuList, AdvisesALibraryThatIsNotInstalled) {
  using emulation::EmulatedGpu;
  EmulatedGpu::Configure({.has_cublas_lt = true});
  EXPECT_TRUE(GpuAdvice().empty());
  EmulatedGpu::Configure({.has_cublas_lt = false});
  ASSERT_EQ(GpuAdvice().size(), 1u);
  EXPECT_NE(GpuAdvice()[0].find("cuBLASLt is not installed"), std::string::npos);
}

TEST(GpuList, AdvisesALibraryThatMultipliesInFp8) {
  emulation::EmulatedGpu::Configure({.has_cublas_lt = true});
  emulatedCublasLtSetVersion(120804);
  ASSERT_EQ(GpuAdvice().size(), 1u);
  EXPECT_NE(GpuAdvice()[0].find("12.9"), std::string::npos);
  emulatedCublasLtSetVersion(120900);
  EXPECT_TRUE(GpuAdvice().empty());
}

}  // namespace
}  // namespace pagemill::gpu
