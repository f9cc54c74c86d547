// The reference of `argmax`: one element at a time.
#include <cmath>
#include <cstdint>
#include <limits>

#include "cc/ops/argmax/argmax.h"

namespace pagemill::ops::argmax {

void RunReference(const OpCall& call, KernelContext&) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const TensorView& x = call.inputs[0];
  for (int64_t l = 0; l < x.shape[0]; ++l) {
    int32_t column = -1;
    float value = -kInfinity;
    for (int64_t v = 0; v < x.shape[1]; ++v) {
      const float element = x.Row<const float>(l)[v];
      if (std::isnan(element) || element == kInfinity) {
        column = -1;
        value = kInfinity;
        break;
      }
      if (element <= value) continue;
      column = static_cast<int32_t>(v);
      value = element;
    }
    *call.outputs[0].Row<int32_t>(l) = column;
    *call.outputs[1].Row<float>(l) = value;
  }
}

}  // namespace pagemill::ops::argmax
