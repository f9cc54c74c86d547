// File: cc/bindings/device_executor_holder.h
// A device that a plugin has opened, and an executor on it, as Python holds them.
#ifndef PAGEMILL_CC_BINDINGS_DEVICE_EXECUTOR_HOLDER_H_
#define PAGEMILL_CC_BINDINGS_DEVICE_EXECUTOR_HOLDER_H_

#include <cstdint>
#include <memory>

#include "cc/device/thread_pool.h"
#include "cc/program/device/device_executor.h"
#include "cc/program/device/plugin_loader.h"
#include "cc/program/executor_options.h"
#include "cc/program/kernel_selection.h"

namespace pagemill::bindings {

struct DeviceHolder {
  std::shared_ptr<program::LoadedPlugin> plugin;
  int32_t index = 0;
  program::OpenedDevice opened;

  program::Target target() const {
    return {.ops = plugin->ops(), .capabilities = opened.capabilities};
  }
};

// The Python object keeps the device's alive, and that of the executor which it shares KV with.
struct DeviceExecutorHolder {
  program::ExecutorOptions options;
  // For what the host samples; executors that share KV have the same.
  std::shared_ptr<device::ThreadPool> pool;
  std::unique_ptr<program::DeviceExecutor> executor;
};

}  // namespace pagemill::bindings

#endif  // PAGEMILL_CC_BINDINGS_DEVICE_EXECUTOR_HOLDER_H_
