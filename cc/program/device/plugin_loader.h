// File: cc/program/device/plugin_loader.h
// Loads a device plugin (device_plugin.h) and makes its kernels an op table.
//
//   PAGEMILL_ASSIGN_OR_RETURN(std::shared_ptr<LoadedPlugin> plugin,
//                             LoadPlugin("/usr/lib/libpagemill_cuda.so", PAGEMILL_VERSION));
//   PAGEMILL_ASSIGN_OR_RETURN(OpenedDevice opened, plugin->plugin().Open(0));
//   const Target target = {.ops = plugin->ops(), .capabilities = opened.capabilities};
//
// A shared object that was loaded stays in the process: vendors' libraries have threads that end
// with it.
#ifndef PAGEMILL_CC_PROGRAM_DEVICE_PLUGIN_LOADER_H_
#define PAGEMILL_CC_PROGRAM_DEVICE_PLUGIN_LOADER_H_

#include <memory>
#include <span>
#include <string>

#include "cc/base/status.h"
#include "cc/ops/device_table.h"
#include "cc/ops/op.h"
#include "cc/program/device/device_plugin.h"

namespace pagemill::program {

// Thread-safe.
class LoadedPlugin {
 public:
  explicit LoadedPlugin(DevicePlugin& plugin) : plugin_(plugin), table_(plugin.kernels()) {}

  DevicePlugin& plugin() const { return plugin_; }
  // The engine's ops with the plugin's kernels; ops without one are missing.
  std::span<const ops::OpDefinition> ops() const { return table_.definitions(); }

 private:
  DevicePlugin& plugin_;
  const ops::DeviceTable table_;
};

// Every error has the path and what to do: kNotFound if there is no such file, kFailedPrecondition
// if it cannot be loaded, is no plugin, or is one of another version.
StatusOr<std::shared_ptr<LoadedPlugin>> LoadPlugin(const std::string& path,
                                                   const std::string& engine_version);

}  // namespace pagemill::program

#endif  // PAGEMILL_CC_PROGRAM_DEVICE_PLUGIN_LOADER_H_
