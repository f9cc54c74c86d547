// The reference of `mask_tokens`: one element at a time.
#include <cmath>
#include <cstdint>
#include <limits>

#include "cc/ops/mask_tokens/mask_tokens.h"
#include "cc/ops/sample/row_draw.h"
#include "cc/ops/sample/words.h"

namespace pagemill::ops::mask_tokens {

void RunReference(const OpCall& call, KernelContext&) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const TensorView& x = call.inputs[0];
  for (int64_t l = 0; l < x.shape[0]; ++l) {
    const auto draw = FromWords<RowDraw>(call.inputs[1], l);
    for (int64_t v = 0; v < x.shape[1]; ++v) {
      const float element = x.Row<const float>(l)[v];
      bool stays = draw.mask < 0 || std::isnan(element) || element == kInfinity;
      if (!stays) {
        const auto word =
            static_cast<uint32_t>(call.inputs[2].Row<const int32_t>(draw.mask)[v / 32]);
        stays = (word >> (v % 32) & 1u) != 0;
      }
      call.outputs[0].Row<float>(l)[v] = stays ? element : -kInfinity;
    }
  }
}

}  // namespace pagemill::ops::mask_tokens
