// File: cuda/ops/activation/activate.h
// The functions of cc/ops/activation/activation_kind.h, for kernels.
#ifndef PAGEMILL_CUDA_OPS_ACTIVATION_ACTIVATE_H_
#define PAGEMILL_CUDA_OPS_ACTIVATION_ACTIVATE_H_

#include "cc/ops/activation/activation_kind.h"
#include "cuda/gpu_math.h"
#include "cuda/gpu_vendor.h"

namespace pagemill::gpu {

PAGEMILL_DEVICE float Activate(ops::ActivationKind kind, float x) {
  using ops::ActivationKind;
  switch (kind) {
    case ActivationKind::kSilu: return x / (1 + Exp(-x));
    case ActivationKind::kGelu: return 0.5f * x * erfcf(x * -0.707106781f);
    case ActivationKind::kGeluTanh:
      return 0.5f * x * (1 + tanhf(0.797884561f * (x + 0.044715f * x * x * x)));
    case ActivationKind::kRelu: return x < 0 ? 0 : x;
    case ActivationKind::kTanh: return tanhf(x);
    case ActivationKind::kQuickGelu: return x / (1 + Exp(-1.702f * x));
    case ActivationKind::kReluSquared: return x < 0 ? 0 : x * x;
    case ActivationKind::kIdentity: return x;
    case ActivationKind::kSigmoid: return 1 / (1 + Exp(-x));
    case ActivationKind::kElu: return x < 0 ? expm1f(x) : x;
    case ActivationKind::kSoftplus: return Softplus(x);
  }
  return 0;
}

// `x` from `low` to `high`; NaN remains.
PAGEMILL_DEVICE float Clamp(float x, float low, float high) {
  return x < low ? low : x > high ? high : x;
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_ACTIVATION_ACTIVATE_H_
