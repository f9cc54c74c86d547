// The reference of `adjust_logits`: one element at a time.
#include <cstdint>

#include "cc/ops/adjust_logits/adjust_logits.h"
#include "cc/ops/sample/row_adjustments.h"
#include "cc/ops/sample/words.h"

namespace pagemill::ops::adjust_logits {

void RunReference(const OpCall& call, KernelContext&) {
  const TensorView& x = call.inputs[0];
  for (int64_t n = 0; n < call.inputs[2].shape[0]; ++n) {
    const auto bias = FromWords<LogitBias>(call.inputs[2], n);
    x.Row<float>(bias.row)[bias.token_id] += bias.bias;
  }
  const int32_t* const ids = call.inputs[4].Data<const int32_t>();
  for (int64_t p = 0; p < call.inputs[3].shape[0]; ++p) {
    const auto penalties = FromWords<RowPenalties>(call.inputs[3], p);
    const int32_t* counts = call.inputs[1].Row<const int32_t>(penalties.slot);
    float* row = x.Row<float>(penalties.row);
    for (int32_t v = 0; v < x.shape[1]; ++v) {
      row[v] = PenalizedLogit(row[v], CountedForRow(counts[v], v, ids, penalties), penalties);
    }
  }
}

}  // namespace pagemill::ops::adjust_logits
