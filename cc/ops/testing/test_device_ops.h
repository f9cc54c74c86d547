// File: cc/ops/testing/test_device_ops.h
// The op table of the test device (cc/device/testing): every op of the CPU, with its best kernel
// that needs no vector instructions and no packed weights, enqueued on a stream instead of run. The
// work translates the addresses of operands, of the step's arrays, of the workspace and of the
// plan; it fails if one of them is not device memory.
//
//   Target target = {.ops = TestDeviceOps(), .capabilities = {}};
//
// Test code only.
#ifndef PAGEMILL_CC_OPS_TESTING_TEST_DEVICE_OPS_H_
#define PAGEMILL_CC_OPS_TESTING_TEST_DEVICE_OPS_H_

#include <span>

#include "cc/ops/op.h"

namespace pagemill::ops::testing {

// Sorted by name, as CpuOps().
std::span<const OpDefinition> TestDeviceOps();

}  // namespace pagemill::ops::testing

#endif  // PAGEMILL_CC_OPS_TESTING_TEST_DEVICE_OPS_H_
