// File: sycl/ops_table.h
// The kernels of SYCL devices. Checks, alias rules and traits of an op are the engine's
// (cc/ops/<op>/<op>.h is the contract of both).
//
//   static const ops::DeviceTable table(SyclKernels());
#ifndef PAGEMILL_SYCL_OPS_TABLE_H_
#define PAGEMILL_SYCL_OPS_TABLE_H_

#include <span>

#include "cc/ops/device_table.h"

namespace pagemill::sycl {

// Sorted by op.
std::span<const ops::OpKernels> SyclKernels();

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_TABLE_H_
