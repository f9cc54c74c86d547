// The reference of `score_tokens`: full sort and double arithmetic (../sample/sample_ref.cc).
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "cc/ops/sample/sample.h"
#include "cc/ops/sample/token_scores.h"
#include "cc/ops/sample/words.h"
#include "cc/ops/score_tokens/score_tokens.h"

namespace pagemill::ops::score_tokens {

void RunReference(const OpCall& call, KernelContext&) {
  const TensorView& x = call.inputs[0];
  const auto width = static_cast<size_t>(x.shape[1]);
  std::vector<Candidate> storage(width);
  for (int64_t n = 0; n < call.inputs[3].shape[0]; ++n) {
    const auto scored = FromWords<ScoredRow>(call.inputs[3], n);
    const float* const row = scored.copy < 0 ? x.Row<const float>(scored.row)
                                             : call.inputs[1].Row<const float>(scored.copy);
    const std::span<const float> logits(row, width);
    const MaxEntry max = reference::ArgMax(logits);
    int32_t token = scored.token_id;
    if (token < 0) token = *call.inputs[2].Row<const int32_t>(scored.row);
    TokenScores scores = {};
    if (max.token_id >= 0) {
      const double lse = reference::LogSumExp(logits, max.logit);
      const auto logprob = [lse](float logit) { return static_cast<float>(double{logit} - lse); };
      if (token >= 0) {
        scores.logprob = logprob(row[token]);
        scores.rank = reference::RankOf(logits, row[token]);
      }
      size_t place = 0;
      for (const Candidate& top : reference::TopEntries(logits, scored.num_top, storage)) {
        scores.top_ids[place] = top.token_id;
        scores.top_logprobs[place++] = logprob(top.logit);
      }
    }
    std::memcpy(call.outputs[0].Row<std::byte>(n), &scores, sizeof(scores));
  }
}

}  // namespace pagemill::ops::score_tokens
