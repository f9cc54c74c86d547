#ifndef PAGEMILL_SYCL_OPS_APPLY_ADAPTER_APPLY_ADAPTER_ACT_KERNEL_H_
#define PAGEMILL_SYCL_OPS_APPLY_ADAPTER_APPLY_ADAPTER_ACT_KERNEL_H_

#include "sycl/ops/apply_adapter/apply_adapter_params.h"
#include "sycl/ops/kernel.h"

using pagemill::ops::AdapterMatrices;

// The adapter of a row; null if it has none.
inline const AdapterMatrices* AdapterOf(const ApplyAdapterParams& p, int64_t row) {
  if (p.slots == nullptr) return nullptr;
  const int64_t token = row / p.choices;
  const int32_t slot = p.slots[p.rows == nullptr ? token : p.rows[token]];
  if (slot < 0) return nullptr;
  const AdapterMatrices* adapter = p.table + slot;
  if (p.experts != nullptr) {
    const int32_t expert = p.experts[row];
    if (expert < 0 || expert >= p.num_experts) return nullptr;
    adapter = p.table + slot * p.num_experts + expert;
  }
  return adapter->empty() ? nullptr : adapter;
}

inline float AdapterElement(const AdapterMatrices& adapter, const void* matrix, int64_t i) {
  return adapter.dtype == pagemill::DType::kF32 ? static_cast<const float*>(matrix)[i]
                                                : Load(static_cast<const Bf16*>(matrix) + i);
}

template <typename T>
inline T* ChoiceRow(const ApplyAdapterParams& p, const ChoiceRows& rows, int64_t row) {
  return rows.tokens.Row<T>(row / p.choices) + row % p.choices * rows.step;
}

// low = scale * A x: a work-group for each row, whose sub-groups have elements of the result.
PAGEMILL_KERNEL void lower_row_kernel(ApplyAdapterParams p) {
  const int64_t row = p.first + GroupId();
  const AdapterMatrices* adapter = AdapterOf(p, row);
  if (adapter == nullptr) return;
  for (int32_t r = LocalId() / kLanes; r < adapter->rank; r += kAdapterGroupSize / kLanes) {
    const int64_t first = r * p.in;
    float sum = 0;
    if (p.ids) {
      sum = AdapterElement(*adapter, adapter->a, first + *ChoiceRow<const int32_t>(p, p.x, row));
    } else {
      const Act* x = ChoiceRow<const Act>(p, p.x, row);
      for (int64_t k = Lane(); k < p.in; k += kLanes) {
        sum = sycl::fma(AdapterElement(*adapter, adapter->a, first + k), Load(x + k), sum);
      }
      sum = sycl::reduce_over_group(SubGroup(), sum, sycl::plus<float>());
    }
    if (Lane() == 0) {
      p.low[GroupId() * pagemill::ops::kMaxAdapterRank + r] = adapter->scale * sum;
    }
  }
}

// z = gain * y + offset + B low, of a type of results.
template <typename T>
inline void RaiseElement(const ApplyAdapterParams& p, int64_t in_part, int64_t m) {
  const int64_t row = p.first + in_part;
  const AdapterMatrices* adapter = AdapterOf(p, row);
  T* z = ChoiceRow<T>(p, p.z, row) + m;
  const T* y = ChoiceRow<const T>(p, p.y, row) + m;
  if (adapter == nullptr) {
    if (z != y) *z = *y;
    return;
  }
  float sum = Load(y);
  if (adapter->gain != nullptr) sum *= adapter->gain[m];
  if (adapter->offset != nullptr) sum += adapter->offset[m];
  const float* low = p.low + in_part * pagemill::ops::kMaxAdapterRank;
  for (int32_t r = 0; r < adapter->rank; ++r) {
    sum = sycl::fma(low[r], AdapterElement(*adapter, adapter->b, r * p.out + m), sum);
  }
  Store(z, sum);
}

// A work-item for each element of the result.
PAGEMILL_KERNEL void raise_row_kernel(ApplyAdapterParams p) {
  const int64_t in_part = GlobalId() / p.out, m = GlobalId() % p.out;
  if (in_part >= p.count) return;
  if (p.f32_result) {
    RaiseElement<float>(p, in_part, m);
  } else {
    RaiseElement<Act>(p, in_part, m);
  }
}

#endif  // PAGEMILL_SYCL_OPS_APPLY_ADAPTER_APPLY_ADAPTER_ACT_KERNEL_H_
