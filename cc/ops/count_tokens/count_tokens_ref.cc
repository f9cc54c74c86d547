// The reference of `count_tokens`: one change after the other.
#include <algorithm>
#include <cstdint>

#include "cc/ops/count_tokens/count_tokens.h"
#include "cc/ops/sample/row_adjustments.h"
#include "cc/ops/sample/words.h"

namespace pagemill::ops::count_tokens {

void RunReference(const OpCall& call, KernelContext&) {
  const TensorView& counts = call.inputs[0];
  const TensorView& changes = call.inputs[2];
  const auto* cleared = call.inputs[1].Data<const int32_t>();
  const auto* ids = call.inputs[3].Data<const int32_t>();
  for (int64_t c = 0; c < call.inputs[1].shape[0]; ++c) {
    std::fill_n(counts.Row<int32_t>(cleared[c]), counts.shape[1], 0);
  }
  for (int64_t n = 0; n < changes.shape[0]; ++n) {
    const auto change = FromWords<TokenCount>(changes, n);
    const int32_t token = change.token_id >= 0 ? change.token_id : ids[-1 - change.token_id];
    if (token < 0 || token >= counts.shape[1]) continue;
    counts.Row<int32_t>(change.slot)[token] += change.amount;
  }
}

}  // namespace pagemill::ops::count_tokens
