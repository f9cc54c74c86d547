// File: cc/program/device/device_plugin.h
// What a vendor's shared object gives the engine: devices, and the kernels of ops on them. It is
// loaded by plugin_loader.h; docs/gpu.md says how to write one.
//
// The shared object has one symbol, kDevicePluginEntry, a DevicePluginEntry:
//
//   extern "C" __attribute__((visibility("default"))) const char* pagemill_device_plugin(
//       const char* engine_version, DevicePlugin** plugin) {
//     return EnterDevicePlugin<VendorPlugin>(PAGEMILL_VERSION, engine_version, plugin);
//   }
//
// Everything else is C++, so a plugin serves the engine of the version that it was compiled with
// and no other. The definitions of ops are the engine's (cc/ops/device_table.h): a plugin has
// kernels only. Loading must not need the vendor's driver: its absence is an answer of Find().
#ifndef PAGEMILL_CC_PROGRAM_DEVICE_DEVICE_PLUGIN_H_
#define PAGEMILL_CC_PROGRAM_DEVICE_DEVICE_PLUGIN_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cc/base/status.h"
#include "cc/device/capabilities.h"
#include "cc/device/device.h"
#include "cc/ops/device_table.h"

namespace pagemill::program {

struct FoundDevice {
  std::string name;          // "NVIDIA H200"
  std::string architecture;  // "sm_90"
  int64_t memory_bytes = 0;
};

struct OpenedDevice {
  std::unique_ptr<device::Device> device;
  device::Capabilities capabilities;
};

// Lives as long as the process. Thread-safe.
class DevicePlugin {
 public:
  // As in `--device cuda:1`: lower-case letters, digits and underscores.
  virtual std::string_view vendor() const = 0;
  // Sorted by op; valid for as long as the plugin.
  virtual std::span<const ops::OpKernels> kernels() const = 0;
  // In the order of their indices. Takes no memory of them. kFailedPrecondition says in a sentence
  // why there are none: no driver, no device.
  virtual StatusOr<std::vector<FoundDevice>> Find() = 0;
  // kFailedPrecondition says in a sentence why the device cannot be used: it does not exist, the
  // kernels are compiled for other architectures.
  virtual StatusOr<OpenedDevice> Open(int32_t index) = 0;
  // What is not installed and would make the devices faster: sentences for people.
  virtual std::vector<std::string> Advice() { return {}; }

 protected:
  ~DevicePlugin() = default;
};

inline constexpr char kDevicePluginEntry[] = "pagemill_device_plugin";

// Sets `plugin` and returns null, or returns why it cannot be used: a sentence that stays valid.
using DevicePluginEntry = const char* (*)(const char* engine_version, DevicePlugin** plugin);

// The entry of a plugin that was compiled with the engine of `version`: a `Plugin`, made by the
// first call, for the engine of the same version.
template <typename Plugin>
const char* EnterDevicePlugin(std::string_view version, std::string_view engine_version,
                              DevicePlugin** plugin) {
  if (engine_version != version) {
    static const std::string refusal = "it is of version " + std::string(version) +
                                       " and this engine of version " +
                                       std::string(engine_version) +
                                       "; install the two of one version";
    return refusal.c_str();
  }
  static Plugin made;
  *plugin = &made;
  return nullptr;
}

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_DEVICE_DEVICE_PLUGIN_H_
