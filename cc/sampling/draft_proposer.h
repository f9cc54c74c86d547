// File: cc/sampling/draft_proposer.h
// Proposes the next tokens of requests for a step to verify: n-grams of the text
// (ngram_proposer.h), what followed its end elsewhere (suffix_proposer.h), or a draft model.
//
//   proposer->Start(index, prompt_and_outputs);
//   std::vector<int32_t> drafts;
//   proposer->Propose(index, /*max_tokens=*/4, &drafts);
//   ... the step returns `tokens`: the accepted drafts and one more ...
//   proposer->Observe(index, tokens);
//
// A fake for tests: cc/sampling/testing/scripted_proposer.h.
#ifndef PAGEMILL_CC_SAMPLING_DRAFT_PROPOSER_H_
#define PAGEMILL_CC_SAMPLING_DRAFT_PROPOSER_H_

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "cc/step/request.h"

namespace pagemill::sampling {

// Obligations of an implementer:
// 1. Start() sets the text of the slot to `tokens` (the prompt and existing outputs) and discards
//    the previous state. Without tokens the slot is free and holds no memory that grows with a
//    text.
// 2. Observe() appends to the text of a started slot. Proposed tokens are not part of the text
//    until they are observed.
// 3. Propose() replaces *drafts by at most `max_tokens` tokens that may follow the text; none if it
//    has no good guess. It has no other visible effect.
// 4. Proposals depend only on the text of the slot, and on texts of earlier requests that may be
//    shared with it: those of Share() with the same salt. Any token may be proposed, even one
//    outside the vocabulary if the text has such: a token that cannot be sampled is not accepted.
//
// Thread safety: used by one thread at a time.
class DraftProposer {
 public:
  virtual ~DraftProposer() = default;
  virtual void Start(step::RequestIndex index, std::span<const int32_t> tokens) = 0;
  // Behind Start(): the text may serve requests with the same `cache_salt`, and theirs serve it.
  virtual void Share(step::RequestIndex index, std::string_view cache_salt) {
    (void)index, (void)cache_salt;
  }
  virtual void Observe(step::RequestIndex index, std::span<const int32_t> tokens) = 0;
  virtual void Propose(step::RequestIndex index, int32_t max_tokens,
                       std::vector<int32_t>* drafts) = 0;
};

}  // namespace pagemill::sampling

#endif  // PAGEMILL_CC_SAMPLING_DRAFT_PROPOSER_H_
