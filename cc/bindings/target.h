// File: cc/bindings/target.h
// The device that the extension binds programs to: this machine's CPU.
#ifndef PAGEMILL_CC_BINDINGS_TARGET_H_
#define PAGEMILL_CC_BINDINGS_TARGET_H_

#include "cc/device/capabilities.h"
#include "cc/ops/op.h"
#include "cc/program/kernel_selection.h"

namespace pagemill::bindings {

inline program::Target CpuTarget() {
  return {.ops = ops::CpuOps(), .capabilities = device::DetectCapabilities()};
}

}  // namespace pagemill::bindings

#endif  // PAGEMILL_CC_BINDINGS_TARGET_H_
