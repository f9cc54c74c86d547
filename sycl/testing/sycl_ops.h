// File: sycl/testing/sycl_ops.h
// The op table of SYCL devices, as the engine makes it for a plugin. Test code only.
//
//   Target target = {.ops = SyclOps(), .capabilities = device->capabilities()};
#ifndef PAGEMILL_SYCL_TESTING_SYCL_OPS_H_
#define PAGEMILL_SYCL_TESTING_SYCL_OPS_H_

#include <span>

#include "cc/ops/device_table.h"
#include "cc/ops/op.h"
#include "sycl/ops_table.h"

namespace pagemill::sycl {

// Sorted by name.
inline std::span<const ops::OpDefinition> SyclOps() {
  static const ops::DeviceTable table(SyclKernels());
  return table.definitions();
}

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_TESTING_SYCL_OPS_H_
