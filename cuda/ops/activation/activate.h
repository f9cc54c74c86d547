// File: cuda/ops/activation/activate.h
// The functions of cc/ops/activation/activation_kind.h, for kernels.
//
//   WithActivationKind(kind, [&]<ops::ActivationKind kKind>() {
//     for (...) y[i] = Activate<kKind>(x[i]);
//   });
#ifndef PAGEMILL_CUDA_OPS_ACTIVATION_ACTIVATE_H_
#define PAGEMILL_CUDA_OPS_ACTIVATION_ACTIVATE_H_

#include "cc/ops/activation/activation_kind.h"
#include "cuda/gpu_math.h"
#include "cuda/gpu_vendor.h"

namespace pagemill::gpu {

// Calls body.template operator()<kKind>() with the kind: a switch in front of a loop. In it, each
// element would branch, and not be computed beside others.
template <typename Body>
PAGEMILL_DEVICE void WithActivationKind(ops::ActivationKind kind, const Body& body) {
  using enum ops::ActivationKind;
  switch (kind) {
    case kSilu: return body.template operator()<kSilu>();
    case kGelu: return body.template operator()<kGelu>();
    case kGeluTanh: return body.template operator()<kGeluTanh>();
    case kRelu: return body.template operator()<kRelu>();
    case kTanh: return body.template operator()<kTanh>();
    case kQuickGelu: return body.template operator()<kQuickGelu>();
    case kReluSquared: return body.template operator()<kReluSquared>();
    case kIdentity: return body.template operator()<kIdentity>();
    case kSigmoid: return body.template operator()<kSigmoid>();
    case kElu: return body.template operator()<kElu>();
    case kSoftplus: return body.template operator()<kSoftplus>();
  }
}

// 1 / (1 + e^-x) with a relative error below 9e-7: rsqrtf() has 2 units in the last place, its
// square two times that, and e^x 2 more. A division would branch for large divisors, and so keep
// elements apart.
PAGEMILL_DEVICE float Sigmoid(float x) {
  const float root = InverseSqrt(1 + Exp(-x));
  return root * root;
}

template <ops::ActivationKind kKind>
PAGEMILL_DEVICE float Activate(float x) {
  using enum ops::ActivationKind;
  switch (kKind) {
    case kSilu: return x * Sigmoid(x);
    case kGelu: return 0.5f * x * erfcf(x * -0.707106781f);
    case kGeluTanh: return 0.5f * x * (1 + tanhf(0.797884561f * (x + 0.044715f * x * x * x)));
    case kRelu: return x < 0 ? 0 : x;
    case kTanh: return tanhf(x);
    case kQuickGelu: return x * Sigmoid(1.702f * x);
    case kReluSquared: return x < 0 ? 0 : x * x;
    case kIdentity: return x;
    case kSigmoid: return Sigmoid(x);
    case kElu: return x < 0 ? expm1f(x) : x;
    case kSoftplus: return Softplus(x);
  }
  return 0;
}

// `x` from `low` to `high`; NaN remains.
PAGEMILL_DEVICE float Clamp(float x, float low, float high) {
  return x < low ? low : x > high ? high : x;
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_ACTIVATION_ACTIVATE_H_
