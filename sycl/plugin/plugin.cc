// The device plugin (cc/program/device/device_plugin.h) of Intel GPUs. Compiled for those and, with
// another name of the vendor, for the CPU device of the runtime.
#include <dlfcn.h>

#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "cc/program/device/device_plugin.h"
#include "sycl/device/onednn.h"
#include "sycl/device/sycl_device.h"
#include "sycl/ops_table.h"

namespace pagemill::sycl {
namespace {

constexpr SyclKind kKind = SyclKind::PAGEMILL_PLUGIN_KIND;

// Libraries of Intel's compilers. OpenCL's loader, which the runtime opens, depends on them and, as
// pip installs it, does not know where they are. This plugin does (DT_RPATH), and what is loaded is
// found by its name.
constexpr const char* kOpenClNeeds[] = {"libintlc.so.5", "libirng.so", "libimf.so", "libsvml.so"};

// A library that is missing is one that another OpenCL does without.
void LoadWhatOpenClNeeds() {
  for (const char* name : kOpenClNeeds) (void)dlopen(name, RTLD_NOW | RTLD_LOCAL);
}

class SyclPlugin final : public program::DevicePlugin {
 public:
  SyclPlugin() { LoadWhatOpenClNeeds(); }

  std::string_view vendor() const override { return PAGEMILL_PLUGIN_VENDOR; }
  std::span<const ops::OpKernels> kernels() const override { return SyclKernels(); }

  // Kernels are compiled for the device that is there: its backend stands for the architecture.
  StatusOr<std::vector<program::FoundDevice>> Find() override {
    PAGEMILL_ASSIGN_OR_RETURN(std::vector<FoundSyclDevice> devices, FindSyclDevices(kKind));
    std::vector<program::FoundDevice> found;
    for (FoundSyclDevice& device : devices) {
      found.push_back({.name = std::move(device.name),
                       .architecture = std::move(device.backend),
                       .memory_bytes = device.memory_bytes});
    }
    return found;
  }

  StatusOr<program::OpenedDevice> Open(int32_t index) override {
    PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<SyclDevice> device, SyclDevice::Open(kKind, index));
    device::Capabilities capabilities = device->capabilities();
    return program::OpenedDevice{.device = std::move(device),
                                 .capabilities = std::move(capabilities)};
  }

  std::vector<std::string> Advice() override {
    const StatusOr<OnednnLibrary> library = OnednnLibrary::Open();
    if (library.ok()) return {};
    return {"prompts are slower without oneDNN: " + library.status().message()};
  }
};

}  // namespace
}  // namespace pagemill::sycl

extern "C" __attribute__((visibility("default"))) const char* pagemill_device_plugin(
    const char* engine_version, pagemill::program::DevicePlugin** plugin) {
  return pagemill::program::EnterDevicePlugin<pagemill::sycl::SyclPlugin>(PAGEMILL_VERSION,
                                                                          engine_version, plugin);
}
