// File: cc/device/testing/emulated_cpu.h
// Whether an emulator runs this test: then floating point is 20 (aarch64) to 100 times (s390x) as
// slow, and what does not depend on the CPU is tested elsewhere.
#ifndef PAGEMILL_CC_DEVICE_TESTING_EMULATED_CPU_H_
#define PAGEMILL_CC_DEVICE_TESTING_EMULATED_CPU_H_

namespace pagemill::device {

// Set by the rules of tools/bazel/qemu_test.bzl.
bool IsEmulatedCpu();

}  // namespace pagemill::device

#endif  // PAGEMILL_CC_DEVICE_TESTING_EMULATED_CPU_H_
