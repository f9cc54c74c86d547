// File: cc/ops/sample/row_adjustments.h
// What changes rows of logits, apart from masks, before a token is chosen from them
// (docs/sampling.md, 3 to 5), as 32-bit words, which are copied to devices and sent to other ranks
// unchanged.
//
//   LogitBias never = {.row = 2, .token_id = eos, .bias = -INFINITY};
//   RowPenalties penalties = {.row = 2, .slot = 7, .repetition = 1.1f};
//   TokenCount in_prompt = {.slot = 7, .token_id = 42, .amount = kInPrompt};
//   TokenCount newest = {.slot = 7, .token_id = TokenOfInput(9), .amount = kOneOutput};
//
// The tokens of a request are counted in the slot that it has: a word for each token of the
// vocabulary, kOneOutput times how often it is in the output, and kInPrompt more if it is in the
// prompt.
#ifndef PAGEMILL_CC_OPS_SAMPLE_ROW_ADJUSTMENTS_H_
#define PAGEMILL_CC_OPS_SAMPLE_ROW_ADJUSTMENTS_H_

#include <cstdint>

namespace pagemill::ops {

// Added to a logit of a row; -inf excludes the token.
struct LogitBias {
  int32_t row = 0;
  int32_t token_id = 0;
  float bias = 0.0f;
};
inline constexpr int64_t kLogitBiasWords = sizeof(LogitBias) / sizeof(int32_t);
static_assert(sizeof(LogitBias) == 3 * sizeof(int32_t));

// Penalties of the tokens that are counted in a slot, and of the drafts in front of the row, which
// are counted as outputs for it alone: ids of the step's ops::StepArrays::token_ids.
struct RowPenalties {
  int32_t row = 0;
  int32_t slot = 0;
  float repetition = 1.0f;  // of tokens in the prompt or the output; > 0
  float frequency = 0.0f;   // for each time in the output
  float presence = 0.0f;    // once, if in the output
  int32_t first_draft = 0;  // index of an id
  int32_t num_drafts = 0;
};
inline constexpr int64_t kRowPenaltiesWords = sizeof(RowPenalties) / sizeof(int32_t);
static_assert(sizeof(RowPenalties) == 7 * sizeof(int32_t));

inline constexpr int32_t kInPrompt = 1;
inline constexpr int32_t kOneOutput = 2;

// Added to what is counted of a token in a slot.
struct TokenCount {
  int32_t slot = 0;
  int32_t token_id = 0;  // or TokenOfInput()
  int32_t amount = 0;
};
inline constexpr int64_t kTokenCountWords = sizeof(TokenCount) / sizeof(int32_t);
static_assert(sizeof(TokenCount) == 3 * sizeof(int32_t));

// In TokenCount::token_id: the id at this index of the step's ops::StepArrays::token_ids, which the
// host may not know yet.
constexpr int32_t TokenOfInput(int32_t index) { return -1 - index; }

// What is counted of a token for a row, `in_slot` of it in its slot. `ids`: of the step.
constexpr int32_t CountedForRow(int32_t in_slot, int32_t token_id, const int32_t* ids,
                                const RowPenalties& penalties) {
  int32_t counted = in_slot;
  for (int32_t i = 0; i < penalties.num_drafts; ++i) {
    if (ids[penalties.first_draft + i] == token_id) counted += kOneOutput;
  }
  return counted;
}

// `logit` of a token of which `counted` is counted.
constexpr float PenalizedLogit(float logit, int32_t counted, const RowPenalties& penalties) {
  if (counted == 0) return logit;
  const float repeated =
      logit > 0.0f ? logit / penalties.repetition : logit * penalties.repetition;
  const int32_t outputs = counted / kOneOutput;
  if (outputs == 0) return repeated;
  return repeated - (penalties.frequency * static_cast<float>(outputs) + penalties.presence);
}

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_SAMPLE_ROW_ADJUSTMENTS_H_
