#include "cc/sampling/penalties.h"

#include <algorithm>

namespace pagemill::sampling {

void Penalties::Start(const step::Request& request, int32_t vocab_size) {
  const step::SamplingParams& p = request.sampling;
  repetition_ = p.repetition_penalty;
  frequency_ = p.frequency_penalty;
  presence_ = p.presence_penalty;
  counts_outputs_ = repetition_ != 1.0f || frequency_ != 0.0f || presence_ != 0.0f;
  prompt_ids_.clear();
  output_counts_.clear();
  if (repetition_ == 1.0f) return;
  prompt_ids_ = request.prompt_token_ids.ToVector();
  std::erase_if(prompt_ids_, [vocab_size](int32_t id) { return id < 0 || id >= vocab_size; });
  std::sort(prompt_ids_.begin(), prompt_ids_.end());
  prompt_ids_.erase(std::unique(prompt_ids_.begin(), prompt_ids_.end()), prompt_ids_.end());
}

void Penalties::AddOutput(int32_t token_id) {
  if (counts_outputs_) ++output_counts_[token_id];
}

void Penalties::Apply(std::span<float> logits) const {
  const auto repeat = [this, logits](int32_t id) {
    float& x = logits[id];
    x = x > 0.0f ? x / repetition_ : x * repetition_;
  };
  if (repetition_ != 1.0f) {
    for (int32_t id : prompt_ids_) repeat(id);
  }
  for (const auto& [id, count] : output_counts_) {
    if (repetition_ != 1.0f && !std::binary_search(prompt_ids_.begin(), prompt_ids_.end(), id)) {
      repeat(id);
    }
    logits[id] -= frequency_ * static_cast<float>(count) + presence_;
  }
}

}  // namespace pagemill::sampling
