#ifndef PAGEMILL_SYCL_OPS_GATED_ACTIVATION_GATED_ACTIVATION_ACT_KERNEL_H_
#define PAGEMILL_SYCL_OPS_GATED_ACTIVATION_GATED_ACTIVATION_ACT_KERNEL_H_

#include "sycl/ops/gated_activation/gated_activation_params.h"
#include "sycl/ops/kernel.h"

inline float Activate(pagemill::ops::ActivationKind kind, float x) {
  using pagemill::ops::ActivationKind;
  switch (kind) {
    case ActivationKind::kSilu:
      return x / (1 + sycl::exp(-x));
    case ActivationKind::kGelu:
      return 0.5f * x * sycl::erfc(-x * 0.70710678f);
    case ActivationKind::kGeluTanh:
      return 0.5f * x * (1 + sycl::tanh(0.79788456f * (x + 0.044715f * x * x * x)));
    case ActivationKind::kRelu:
      return x < 0 ? 0 : x;
    case ActivationKind::kTanh:
      return sycl::tanh(x);
    case ActivationKind::kQuickGelu:
      return x / (1 + sycl::exp(-1.702f * x));
    case ActivationKind::kReluSquared:
      return x < 0 ? 0 : x * x;
    case ActivationKind::kIdentity:
      return x;
    case ActivationKind::kSigmoid:
      return 1 / (1 + sycl::exp(-x));
    case ActivationKind::kElu:
      return x < 0 ? sycl::expm1(x) : x;
  }
  return 0;
}

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
