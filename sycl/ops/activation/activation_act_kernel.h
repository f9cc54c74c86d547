#ifndef PAGEMILL_SYCL_OPS_ACTIVATION_ACTIVATION_ACT_KERNEL_H_
#define PAGEMILL_SYCL_OPS_ACTIVATION_ACTIVATION_ACT_KERNEL_H_

#include "sycl/ops/activation/activation_params.h"
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
    case ActivationKind::kSoftplus:
      return sycl::fmax(x, 0.0f) + sycl::log1p(sycl::exp(-sycl::fabs(x)));
  }
  return 0;
}

// A work-item for each element.
PAGEMILL_KERNEL void activation_kernel(ActivationParams p) {
  const int64_t i = GlobalId();
  if (i >= p.rows * p.width) return;
  const int64_t row = i / p.width, column = i % p.width;
  float x = Load(p.x.Row<const Act>(row) + column);
  // The comparisons are false for NaN, which remains.
  if (p.limit > 0 && x > p.limit) x = p.limit;
  if (p.limit > 0 && x < p.lower) x = p.lower;
  Store(p.y.Row<Act>(row) + column, Activate(p.kind, x));
}

#endif  // PAGEMILL_SYCL_OPS_ACTIVATION_ACTIVATION_ACT_KERNEL_H_
