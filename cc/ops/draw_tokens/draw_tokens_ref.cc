// The reference of `draw_tokens`: full sort and double arithmetic (../sample/sample_ref.cc).
#include <cstdint>

#include "cc/ops/draw_tokens/draw_tokens.h"
#include "cc/ops/sample/row_draw.h"
#include "cc/ops/sample/words.h"

namespace pagemill::ops::draw_tokens {

void RunReference(const OpCall& call, KernelContext&) {
  const TensorView& x = call.inputs[0];
  for (int64_t l = 0; l < x.shape[0]; ++l) {
    const MaxEntry max = {.token_id = *call.inputs[1].Row<const int32_t>(l),
                          .logit = *call.inputs[2].Row<const float>(l)};
    const auto draw = FromWords<RowDraw>(call.inputs[3], l);
    int32_t column = max.token_id;
    if (column >= 0 && draw.temperature > 0.0f) {
      column = reference::DrawToken({x.Row<const float>(l), static_cast<size_t>(x.shape[1])}, max,
                                    DrawParamsOf(draw), {});
    }
    *call.outputs[0].Row<int32_t>(l) = column;
  }
}

}  // namespace pagemill::ops::draw_tokens
