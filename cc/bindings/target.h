// File: cc/bindings/target.h
// What the extension binds programs to: this machine's CPU, or a device of a plugin.
#ifndef PAGEMILL_CC_BINDINGS_TARGET_H_
#define PAGEMILL_CC_BINDINGS_TARGET_H_

#include "cc/bindings/device_executor_holder.h"
#include "cc/device/capabilities.h"
#include "cc/ops/op.h"
#include "cc/program/kernel_selection.h"

namespace pagemill::bindings {

inline program::Target CpuTarget() {
  return {.ops = ops::CpuOps(), .capabilities = device::DetectCapabilities()};
}

// Null: the CPU.
inline program::Target TargetOf(const DeviceHolder* device) {
  return device == nullptr ? CpuTarget() : device->target();
}

}  // namespace pagemill::bindings

#endif  // PAGEMILL_CC_BINDINGS_TARGET_H_
