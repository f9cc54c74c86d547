#include "cc/sampling/penalties.h"

#include <algorithm>

namespace pagemill::sampling {
namespace {

constexpr int32_t kMostMissing = 32;  // outputs that are listed one by one

}  // namespace

void Penalties::Start(const step::Request& request, int32_t vocab_size) {
  const step::SamplingParams& p = request.sampling;
  penalties_ = {.repetition = p.repetition_penalty,
                .frequency = p.frequency_penalty,
                .presence = p.presence_penalty};
  counts_outputs_ = p.repetition_penalty != 1.0f || p.frequency_penalty != 0.0f ||
                    p.presence_penalty != 0.0f;
  prompt_ids_.clear();
  outputs_.clear();
  output_counts_.clear();
  num_counted_ = kNothing;
  if (p.repetition_penalty == 1.0f) return;
  prompt_ids_ = request.prompt_token_ids.ToVector();
  // Placeholders, and what the model writes at the ends of their rows, are not the prompt's words.
  for (const step::MediaItem& item : request.media) {
    std::fill_n(prompt_ids_.begin() + item.first_token, item.num_tokens, -1);
  }
  std::erase_if(prompt_ids_, [vocab_size](int32_t id) { return id < 0 || id >= vocab_size; });
  std::sort(prompt_ids_.begin(), prompt_ids_.end());
  prompt_ids_.erase(std::unique(prompt_ids_.begin(), prompt_ids_.end()), prompt_ids_.end());
}

void Penalties::AddOutput(int32_t token_id) {
  if (!counts_outputs_) return;
  outputs_.push_back(token_id);
  ++output_counts_[token_id];
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
  const int32_t missing = num_outputs - num_counted_;  // if some are counted
  const bool known = static_cast<size_t>(num_outputs) <= outputs_.size();
  if (num_counted_ == kNothing) {
    CountAll(slot, to);
  } else if (missing == 1) {
    to->counts.push_back({slot, ops::TokenOfInput(input), ops::kOneOutput});
  } else if (missing > 1 && missing <= kMostMissing && known) {
    CountFrom(static_cast<size_t>(num_counted_), static_cast<size_t>(num_outputs), slot, to);
  } else if (missing != 0) {
    CountAll(slot, to);
  }
  num_counted_ = num_outputs;
}

// Tokens that occur several times are listed once.
void Penalties::CountFrom(size_t first, size_t end, int32_t slot, StepAdjustments* to) const {
  const auto begin = outputs_.begin();
  for (size_t i = first; i < end; ++i) {
    const auto from = begin + static_cast<int64_t>(first), here = begin + static_cast<int64_t>(i);
    if (std::find(from, here, *here) != here) continue;
    const auto times = std::count(here, begin + static_cast<int64_t>(end), *here);
    to->counts.push_back({slot, *here, static_cast<int32_t>(times) * ops::kOneOutput});
  }
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
