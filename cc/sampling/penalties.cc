#include "cc/sampling/penalties.h"

#include <algorithm>

namespace pagemill::sampling {

void Penalties::Start(const step::Request& request, int32_t vocab_size) {
  const step::SamplingParams& p = request.sampling;
  penalties_ = {.repetition = p.repetition_penalty,
                .frequency = p.frequency_penalty,
                .presence = p.presence_penalty};
  counts_outputs_ = p.repetition_penalty != 1.0f || p.frequency_penalty != 0.0f ||
                    p.presence_penalty != 0.0f;
  prompt_ids_.clear();
  output_counts_.clear();
  num_counted_ = kNothing;
  if (p.repetition_penalty == 1.0f) return;
  prompt_ids_ = request.prompt_token_ids.ToVector();
  std::erase_if(prompt_ids_, [vocab_size](int32_t id) { return id < 0 || id >= vocab_size; });
  std::sort(prompt_ids_.begin(), prompt_ids_.end());
  prompt_ids_.erase(std::unique(prompt_ids_.begin(), prompt_ids_.end()), prompt_ids_.end());
}

void Penalties::AddOutput(int32_t token_id) {
  if (counts_outputs_) ++output_counts_[token_id];
}

void Penalties::Apply(std::span<float> logits) const {
  const auto penalize = [this, logits](int32_t id, int32_t counted) {
    logits[static_cast<size_t>(id)] =
        ops::PenalizedLogit(logits[static_cast<size_t>(id)], counted, penalties_);
  };
  for (int32_t id : prompt_ids_) {
    if (!output_counts_.contains(id)) penalize(id, ops::kInPrompt);
  }
  for (const auto& [id, count] : output_counts_) penalize(id, count * ops::kOneOutput);
}

ops::RowPenalties Penalties::OfRow(int32_t row, int32_t slot) const {
  ops::RowPenalties of_row = penalties_;
  of_row.row = row;
  of_row.slot = slot;
  return of_row;
}

void Penalties::CountUpTo(int32_t num_outputs, int32_t slot, int32_t input, StepAdjustments* to) {
  if (num_counted_ != kNothing && num_counted_ + 1 == num_outputs) {
    to->counts.push_back({slot, ops::TokenOfInput(input), ops::kOneOutput});
  } else if (num_counted_ != num_outputs) {
    CountAll(slot, to);
  }
  num_counted_ = num_outputs;
}

void Penalties::CountAll(int32_t slot, StepAdjustments* to) const {
  to->cleared_slots.push_back(slot);
  for (int32_t id : prompt_ids_) {
    if (!output_counts_.contains(id)) to->counts.push_back({slot, id, ops::kInPrompt});
  }
  // What is in the output is penalized alike, in the prompt or not.
  for (const auto& [id, count] : output_counts_) {
    to->counts.push_back({slot, id, count * ops::kOneOutput});
  }
}

}  // namespace pagemill::sampling
