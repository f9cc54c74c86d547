// The device plugin (cc/program/device/device_plugin.h) of this tree: its GPUs and its kernels.
// Compiled for the vendor's runtime and for the emulation, with the name of the vendor.
#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "cc/program/device/device_plugin.h"
#include "cuda/device/gpu_device.h"
#include "cuda/device/gpu_list.h"
#include "cuda/ops_table.h"

namespace pagemill::gpu {
namespace {

class GpuPlugin final : public program::DevicePlugin {
 public:
  std::string_view vendor() const override { return PAGEMILL_PLUGIN_VENDOR; }
  std::span<const ops::OpKernels> kernels() const override { return GpuKernels(); }

  StatusOr<std::vector<program::FoundDevice>> Find() override {
    PAGEMILL_ASSIGN_OR_RETURN(std::vector<FoundGpu> gpus, FindGpus());
    std::vector<program::FoundDevice> found;
    for (FoundGpu& gpu : gpus) {
      found.push_back({.name = std::move(gpu.name),
                       .architecture = std::move(gpu.architecture),
                       .memory_bytes = gpu.memory_bytes});
    }
    return found;
  }

  StatusOr<program::OpenedDevice> Open(int32_t index) override {
    PAGEMILL_ASSIGN_OR_RETURN(const std::vector<FoundGpu> found, FindGpus());
    PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<GpuDevice> gpu, GpuDevice::Open(index));
    PAGEMILL_RETURN_IF_ERROR(CheckRunsKernels(*gpu, found[static_cast<size_t>(index)]));
    device::Capabilities capabilities = {.kind = device::DeviceKind::kGpu,
                                         .gpu = gpu->capabilities()};
    return program::OpenedDevice{.device = std::move(gpu),
                                 .capabilities = std::move(capabilities)};
  }

  std::vector<std::string> Advice() override { return GpuAdvice(); }
};

}  // namespace
}  // namespace pagemill::gpu

extern "C" __attribute__((visibility("default"))) const char* pagemill_device_plugin(
    const char* engine_version, pagemill::program::DevicePlugin** plugin) {
  return pagemill::program::EnterDevicePlugin<pagemill::gpu::GpuPlugin>(PAGEMILL_VERSION,
                                                                        engine_version, plugin);
}
