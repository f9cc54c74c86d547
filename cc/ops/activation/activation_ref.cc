#include <cmath>

#include "cc/ops/activation/activation.h"

namespace pagemill::ops {

double ActivateReference(ActivationKind kind, double x) {
  switch (kind) {
    case ActivationKind::kSilu:
      return x / (1 + std::exp(-x));
    case ActivationKind::kGelu:
      return 0.5 * x * std::erfc(-x * std::sqrt(0.5));
    case ActivationKind::kGeluTanh: {
      const double inner = std::sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x);
      return 0.5 * x * (1 + std::tanh(inner));
    }
    case ActivationKind::kRelu:
      return x < 0 ? 0 : x;
    case ActivationKind::kTanh:
      return std::tanh(x);
    case ActivationKind::kQuickGelu:
      return x / (1 + std::exp(-1.702 * x));
    case ActivationKind::kReluSquared:
      return x < 0 ? 0 : x * x;
    case ActivationKind::kIdentity:
      return x;
    case ActivationKind::kSigmoid:
      return 1 / (1 + std::exp(-x));
    case ActivationKind::kElu:
      return x < 0 ? std::expm1(x) : x;
    case ActivationKind::kSoftplus:
      return std::fmax(x, 0) + std::log1p(std::exp(-std::fabs(x)));
  }
  return 0;
}

void ActivationReference(const OpCall& call, KernelContext&) {
  const ActivationArgs args = ToActivationArgs(call);
  for (int64_t n = 0; n < args.x.shape[0]; ++n) {
    const float* x = args.x.Row<float>(n);
    float* y = args.y.Row<float>(n);
    for (int64_t i = 0; i < args.x.RowElements(); ++i) {
      // The comparisons are false for NaN, which remains.
      double value = x[i];
      if (args.limit > 0 && value > args.limit) value = args.limit;
      if (args.limit > 0 && value < args.lower) value = args.lower;
      y[i] = static_cast<float>(ActivateReference(args.kind, value));
    }
  }
}

}  // namespace pagemill::ops
