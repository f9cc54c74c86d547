#include "sycl/device/testing/cpu_device.h"

#include <cstdio>
#include <cstdlib>

#include "cc/base/status.h"
#include "sycl_cpu_runtime.h"

namespace pagemill::sycl::testing {

std::unique_ptr<SyclDevice> OpenCpuDevice() {
  setenv("OCL_ICD_FILENAMES", kSyclCpuRuntime, /*overwrite=*/0);
  StatusOr<std::unique_ptr<SyclDevice>> device = SyclDevice::Open(SyclKind::kCpu, 0);
  if (!device.ok()) std::fprintf(stderr, "%s\n", device.status().ToString().c_str());
  PAGEMILL_CHECK(device.ok());
  return *std::move(device);
}

}  // namespace pagemill::sycl::testing
