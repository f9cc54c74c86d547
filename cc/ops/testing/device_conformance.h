// File: cc/ops/testing/device_conformance.h
// Runs the conformance checks of ops on a device: wraps a device kernel as a kernel on host memory
// that copies its operands to the device, runs there and copies them back, so that a vendor tree
// links the same checks as the CPU. Test code only (uses googletest).
//
//   TestedDevice& Gpu() {                       // lives as long as the test
//     static GpuDevice device;
//     static TestedDevice tested(device);
//     return tested;
//   }
//   const Kernel& AddKernel() { return AddKernels()[0]; }
//
//   const Kernel kernels[] = {conformance::OnHost<AddKernel, Gpu>(),
//                             conformance::ReferenceKernel(AddOp())};
//   CheckAddConformance({.op = "add", .check = AddOp().check, .kernels = kernels}, capabilities);
//
// Collectives run on a stream of their own, which joins those of the other ranks in the group of
// the context.
//
// Operands keep their misalignment and the gaps between their rows, and overlapping operands
// overlap on the device. A write outside of operands, in gaps, workspace guards or next to an
// operand, fails the test, as does an error of the stream.
#ifndef PAGEMILL_CC_OPS_TESTING_DEVICE_CONFORMANCE_H_
#define PAGEMILL_CC_OPS_TESTING_DEVICE_CONFORMANCE_H_

#include <cstddef>
#include <functional>
#include <memory>

#include "cc/device/device.h"
#include "cc/ops/op.h"

namespace pagemill::ops::conformance {

// A device with a stream to test on. The device outlives it.
class TestedDevice {
 public:
  explicit TestedDevice(device::Device& device);

  // Runs `kernel`, a kernel of the device, on operands, arrays and a plan in host memory.
  void Run(const Kernel& kernel, const OpCall& call, const KernelContext& on_host);

 private:
  // `before_run` is called when the operands are on the device.
  void RunOn(device::Stream& stream, const Kernel& kernel, const OpCall& call,
             const std::byte* plan, const std::function<void()>& before_run);

  device::Device& device_;
  std::unique_ptr<device::Stream> stream_;
};

// Wraps `kKernel` as a kernel on host memory.
template <const Kernel& (*kKernel)(), TestedDevice& (*kDevice)()>
Kernel OnHost() {
  Kernel on_host = kKernel();
  on_host.run = [](const OpCall& call, KernelContext& context) {
    kDevice().Run(kKernel(), call, context);
  };
  on_host.workspace_bytes = nullptr;  // it is the device's
  on_host.run_row_maxima = nullptr;
  return on_host;
}

}  // namespace pagemill::ops::conformance

#endif  // PAGEMILL_CC_OPS_TESTING_DEVICE_CONFORMANCE_H_
