#include "cc/program/device/plugin_loader.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>

namespace pagemill::program {
namespace {

Status Unusable(const std::string& path, const std::string& why) {
  return FailedPrecondition("the device plugin " + path + " cannot be used: " + why);
}

// What DeviceTable requires.
Status CheckKernels(const std::string& path, std::span<const ops::OpKernels> rows) {
  if (!std::ranges::is_sorted(rows, {}, &ops::OpKernels::op)) {
    return Unusable(path, "its ops are not sorted by name");
  }
  for (const ops::OpKernels& row : rows) {
    if (ops::FindOp(ops::CpuOps(), row.op).ok()) continue;
    return Unusable(path, "it has kernels of " + std::string(row.op) +
                              ", which is no op of this engine; compile it with its source");
  }
  return OkStatus();
}

}  // namespace

StatusOr<std::shared_ptr<LoadedPlugin>> LoadPlugin(const std::string& path,
                                                   const std::string& engine_version) {
  if (access(path.c_str(), F_OK) != 0) {
    return NotFound("there is no device plugin " + path + "; install its package again");
  }
  // Local: plugins contain the same C++ code as the engine, each its own copy.
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return Unusable(path, std::string(dlerror()) + "; install the package for this system");
  }
  const auto entry = reinterpret_cast<DevicePluginEntry>(dlsym(library, kDevicePluginEntry));
  if (entry == nullptr) {
    return Unusable(path, "it has no symbol " + std::string(kDevicePluginEntry) +
                              ", so it is no plugin of this engine");
  }
  DevicePlugin* plugin = nullptr;
  const char* const refusal = entry(engine_version.c_str(), &plugin);
  if (refusal != nullptr) return Unusable(path, refusal);
  if (plugin == nullptr) return Unusable(path, "it neither works nor says why");
  PAGEMILL_RETURN_IF_ERROR(CheckKernels(path, plugin->kernels()));
  return std::make_shared<LoadedPlugin>(*plugin);
}

}  // namespace pagemill::program
