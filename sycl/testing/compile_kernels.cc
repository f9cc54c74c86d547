// Compiles all modules of kernels for the CPU device, and prints how long each took. The runtime
// keeps them on disk if its environment says so (docs/gpu.md).
//
//   compile_kernels
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>

#include "cc/base/status.h"
#include "sycl/device/sycl_device.h"
#include "sycl/device/testing/cpu_device.h"
#include "sycl/ops/kernel_modules.h"

namespace pagemill::sycl {
namespace {

Status Main() {
  const std::unique_ptr<SyclDevice> device = testing::OpenCpuDevice();
  for (const KernelModule* module : AllModules()) {
    const auto begin = std::chrono::steady_clock::now();
    PAGEMILL_RETURN_IF_ERROR(device->Compile(*module));
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    std::printf("%s: %.2f s\n", std::string(module->name).c_str(), seconds.count());
  }
  return OkStatus();
}

}  // namespace
}  // namespace pagemill::sycl

int main() {
  const pagemill::Status status = pagemill::sycl::Main();
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
