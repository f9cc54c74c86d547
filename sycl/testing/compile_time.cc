// Prints how long the CPU device takes to compile each module of kernels (docs/gpu.md).
//
//   compile_time
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>

#include "cc/base/status.h"
#include "cc/device/stream.h"
#include "sycl/device/sycl_stream.h"
#include "sycl/device/testing/cpu_device.h"
#include "sycl/ops/add/add_params.h"
#include "sycl/ops/kernel_modules.h"
#include "sycl/ops/take_tokens/take_tokens_params.h"

namespace pagemill::sycl {
namespace {

// Launches a kernel that does nothing.
template <typename Params>
Status Time(SyclDevice& device, const KernelModule& module, const char* kernel,
            const Params& params) {
  const auto begin = std::chrono::steady_clock::now();
  PAGEMILL_ASSIGN_OR_RETURN(const std::unique_ptr<device::Stream> stream, device.NewStream());
  const std::unique_ptr<device::Event> done = device.NewEvent();
  LaunchKernel(*stream, {.module = module, .kernel = kernel, .groups = 1, .group_size = 128},
               params);
  stream->Record(*done);
  PAGEMILL_RETURN_IF_ERROR(done->Synchronize());
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  std::printf("%s: %.2f s\n", std::string(module.name).c_str(), seconds.count());
  return OkStatus();
}

Status Main() {
  const std::unique_ptr<SyclDevice> device = testing::OpenCpuDevice();
  AddParams nothing;
  nothing.width = 1;
  for (const DType act : {DType::kF32, DType::kBF16, DType::kF16}) {
    PAGEMILL_RETURN_IF_ERROR(Time(*device, ActModule(act), "add_kernel", nothing));
  }
  return Time(*device, TokenModule(), "take_tokens_kernel", TakeTokensParams{});
}

}  // namespace
}  // namespace pagemill::sycl

int main() {
  const pagemill::Status status = pagemill::sycl::Main();
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
