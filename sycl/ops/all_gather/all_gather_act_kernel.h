#ifndef PAGEMILL_SYCL_OPS_ALL_GATHER_ALL_GATHER_ACT_KERNEL_H_
#define PAGEMILL_SYCL_OPS_ALL_GATHER_ALL_GATHER_ACT_KERNEL_H_

#include "sycl/ops/all_gather/all_gather_params.h"
#include "sycl/ops/kernel.h"

// A work-item for each received element.
PAGEMILL_KERNEL void all_gather_kernel(AllGatherParams p) {
  const int64_t rank = GlobalId() / p.count, i = GlobalId() % p.count;
  if (rank >= p.ranks) return;
  const int64_t begin = p.begins[rank], columns = p.begins[rank + 1] - begin;
  const int64_t at = p.first + i;
  if (at >= p.rows * columns) return;
  p.y.Row<Act>(at / columns)[begin + at % columns] =
      static_cast<const Act*>(p.parts)[rank * p.count + i];
}

#endif  // PAGEMILL_SYCL_OPS_ALL_GATHER_ALL_GATHER_ACT_KERNEL_H_
