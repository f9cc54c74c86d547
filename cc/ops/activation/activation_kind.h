// File: cc/ops/activation/activation_kind.h
// The activation functions of `activation` and `gated_activation`; the values are those of the
// attribute `kind` in program text (docs/program_format.md).
#ifndef PAGEMILL_CC_OPS_ACTIVATION_ACTIVATION_KIND_H_
#define PAGEMILL_CC_OPS_ACTIVATION_ACTIVATION_KIND_H_

#include <cstdint>

namespace pagemill::ops {

enum class ActivationKind : int32_t {
  kSilu = 0,      // x / (1 + e^-x)
  kGelu = 1,      // x Phi(x), by the error function
  kGeluTanh = 2,  // its tanh approximation
  kRelu = 3,
  kTanh = 4,
  kQuickGelu = 5,  // x / (1 + e^-1.702x)
  kReluSquared = 6,  // max(x, 0)^2
  kIdentity = 7,     // x: `gated_activation` multiplies
  kSigmoid = 8,      // 1 / (1 + e^-x)
  kElu = 9,          // x, or e^x - 1 if x < 0
  kSoftplus = 10,    // ln(1 + e^x)
};
inline constexpr int32_t kNumActivationKinds = 11;

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_ACTIVATION_ACTIVATION_KIND_H_
