// File: sycl/ops_table.h
// The op table of SYCL devices. Checks, alias rules and traits of an op are those of the CPU's
// (cc/ops/<op>/<op>.h is the contract of both).
//
//   Target target = {.ops = SyclOps(), .capabilities = device->capabilities()};
#ifndef PAGEMILL_SYCL_OPS_TABLE_H_
#define PAGEMILL_SYCL_OPS_TABLE_H_

#include <span>

#include "cc/ops/op.h"

namespace pagemill::sycl {

// Sorted by name.
std::span<const ops::OpDefinition> SyclOps();

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_TABLE_H_
