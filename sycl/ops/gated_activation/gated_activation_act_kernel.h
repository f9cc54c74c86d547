#ifndef PAGEMILL_SYCL_OPS_GATED_ACTIVATION_GATED_ACTIVATION_ACT_KERNEL_H_
#define PAGEMILL_SYCL_OPS_GATED_ACTIVATION_GATED_ACTIVATION_ACT_KERNEL_H_

#include "sycl/ops/activation/activation_act_kernel.h"  // Activate()
#include "sycl/ops/gated_activation/gated_activation_params.h"
#include "sycl/ops/kernel.h"

// A work-item for each element.
PAGEMILL_KERNEL void gated_activation_kernel(GatedActivationParams p) {
  const int64_t i = GlobalId();
  if (i >= p.rows * p.width) return;
  const int64_t row = i / p.width, column = i % p.width;
  float x = Load(p.gate.Row<const Act>(row) + column);
  float factor = Load(p.up.Row<const Act>(row) + column);
  if (p.limit > 0) {
    x = x > p.limit ? p.limit : x;
    factor = (factor > p.limit ? p.limit : factor < -p.limit ? -p.limit : factor) + p.up_offset;
  }
  Store(p.y.Row<Act>(row) + column, Activate(p.kind, x) * factor);
}

#endif  // PAGEMILL_SYCL_OPS_GATED_ACTIVATION_GATED_ACTIVATION_ACT_KERNEL_H_
