#include "cc/ops/device_table.h"

#include <algorithm>

namespace pagemill::ops {

DeviceTable::DeviceTable(std::span<const OpKernels> rows) {
  PAGEMILL_CHECK(std::ranges::is_sorted(rows, {}, &OpKernels::op));
  for (const OpKernels& row : rows) {
    const StatusOr<const OpDefinition*> cpu = FindOp(CpuOps(), row.op);
    PAGEMILL_CHECK(cpu.ok());
    OpDefinition& definition = definitions_.emplace_back(**cpu);
    definition.kernels = row.kernels;
  }
}

}  // namespace pagemill::ops
