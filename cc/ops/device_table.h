// File: cc/ops/device_table.h
// The op table of a device, from its kernels: everything else about an op is the same on every
// device.
//
//   const OpKernels kRows[] = {{"add", AddKernels()}, ...};
//   static const DeviceTable table(kRows);
//   return table.definitions();
#ifndef PAGEMILL_CC_OPS_DEVICE_TABLE_H_
#define PAGEMILL_CC_OPS_DEVICE_TABLE_H_

#include <span>
#include <string_view>
#include <vector>

#include "cc/ops/op.h"

namespace pagemill::ops {

struct OpKernels {
  std::string_view op;
  std::span<const Kernel> kernels;  // must outlive the table
};

// Immutable; thread-safe.
class DeviceTable {
 public:
  // Rows are sorted by name and name ops of the CPU; aborts otherwise.
  explicit DeviceTable(std::span<const OpKernels> rows);

  // Sorted by name; ops without a row are missing.
  std::span<const OpDefinition> definitions() const { return definitions_; }

 private:
  std::vector<OpDefinition> definitions_;
};

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_DEVICE_TABLE_H_
