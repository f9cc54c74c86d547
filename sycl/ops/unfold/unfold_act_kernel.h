#ifndef PAGEMILL_SYCL_OPS_UNFOLD_UNFOLD_ACT_KERNEL_H_
#define PAGEMILL_SYCL_OPS_UNFOLD_UNFOLD_ACT_KERNEL_H_

#include "sycl/ops/kernel.h"
#include "sycl/ops/unfold/unfold_params.h"

// A work-item for each element of the result.
PAGEMILL_KERNEL void unfold_kernel(UnfoldParams p) {
  const int64_t row = GlobalId() / p.width, i = GlobalId() % p.width;
  if (row >= p.rows) return;
  const int64_t elements = p.channels * p.size;  // of a window
  const int64_t window = i / elements, element = i % elements;
  int64_t first = row, position = window * p.stride + element % p.size - p.padding;
  int64_t end = p.positions;  // of positions from row `first` on
  if (p.index != nullptr) {
    const int64_t in_group = row % p.group;
    first = row - in_group;
    end = sycl::min(p.rows - first, p.group) * p.positions;
    position = p.index[(in_group * p.count + window) * p.size + element % p.size];
  }
  const bool inside = position >= 0 && position < end;
  if (!inside) position = 0;
  p.y.Row<Act>(row)[i] =
      inside ? p.x.Row<const Act>(
                   first +
                   position / p.positions)[position % p.positions * p.channels + element / p.size]
             : Act{};
}

#endif  // PAGEMILL_SYCL_OPS_UNFOLD_UNFOLD_ACT_KERNEL_H_
