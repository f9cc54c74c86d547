#ifndef PAGEMILL_SYCL_OPS_EMBEDDING_EMBEDDING_ACT_KERNEL_H_
#define PAGEMILL_SYCL_OPS_EMBEDDING_EMBEDDING_ACT_KERNEL_H_

#include "sycl/ops/embedding/embedding_params.h"
#include "sycl/ops/kernel.h"
#include "sycl/ops/weights.h"

// A work-item for each element of the result.
PAGEMILL_KERNEL void embedding_kernel(EmbeddingParams p) {
  const int64_t i = GlobalId();
  if (i >= p.rows * p.width) return;
  const int64_t row = i / p.width, column = i % p.width;
  const int32_t id = p.ids[row];
  const bool outside = p.outside >= 0 && (id < 0 || id >= p.table_rows);
  WithWeightRow(p.table, /*matrix=*/0, outside ? p.outside : id, [&](const auto& of_table) {
    Store(p.y.Row<Act>(row) + column, of_table.At(column) * p.scale);
  });
}

#endif  // PAGEMILL_SYCL_OPS_EMBEDDING_EMBEDDING_ACT_KERNEL_H_
