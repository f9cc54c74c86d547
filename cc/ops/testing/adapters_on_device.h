// File: cc/ops/testing/adapters_on_device.h
// Runs a device's kernel of `apply_adapter` on operands in host memory: the entries of its tables
// point to matrices, which TestedDevice does not copy. Test code only.
//
//   Kernel kernel = ApplyAdapterKernels()[0];
//   kernel.run = [](const OpCall& call, KernelContext& context) {
//     RunWithAdapters(TheDevice(), Tested(), ApplyAdapterKernels()[0], call, context);
//   };
//   kernel.workspace_bytes = nullptr;  // it is the device's
#ifndef PAGEMILL_CC_OPS_TESTING_ADAPTERS_ON_DEVICE_H_
#define PAGEMILL_CC_OPS_TESTING_ADAPTERS_ON_DEVICE_H_

#include "cc/device/device.h"
#include "cc/ops/op.h"
#include "cc/ops/testing/device_conformance.h"

namespace pagemill::ops::conformance {

// `tested` is of `device`.
void RunWithAdapters(device::Device& device, TestedDevice& tested, const Kernel& kernel,
                     const OpCall& call, const KernelContext& on_host);

}  // namespace pagemill::ops::conformance

#endif  // PAGEMILL_CC_OPS_TESTING_ADAPTERS_ON_DEVICE_H_
