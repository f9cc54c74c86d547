#ifndef PAGEMILL_SYCL_OPS_ALL_REDUCE_ALL_REDUCE_ACT_KERNEL_H_
#define PAGEMILL_SYCL_OPS_ALL_REDUCE_ALL_REDUCE_ACT_KERNEL_H_

#include "sycl/ops/all_reduce/all_reduce_params.h"
#include "sycl/ops/kernel.h"

template <typename T>
inline T* ElementAt(const RowElements& elements, int64_t i) {
  const int64_t at = elements.first + i;
  return elements.rows.Row<T>(at / elements.width) + at % elements.width;
}

// A work-item for each element.
PAGEMILL_KERNEL void pack_elements_kernel(PackElementsParams p) {
  const int64_t i = GlobalId();
  if (i < p.x.count) static_cast<Act*>(p.packed)[i] = *ElementAt<const Act>(p.x, i);
}

// A work-item for each element, which adds the ranks' in their order and rounds once.
PAGEMILL_KERNEL void all_reduce_kernel(AllReduceParams p) {
  const int64_t i = GlobalId();
  if (i >= p.y.count) return;
  const Act* const part = static_cast<const Act*>(p.parts) + i;
  float sum = Load(part);
  for (int32_t r = 1; r < p.ranks; ++r) sum += Load(part + r * p.y.count);
  Store(ElementAt<Act>(p.y, i), sum);
}

#endif  // PAGEMILL_SYCL_OPS_ALL_REDUCE_ALL_REDUCE_ACT_KERNEL_H_
