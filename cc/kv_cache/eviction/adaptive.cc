#include "cc/kv_cache/eviction/adaptive.h"

#include <algorithm>

namespace pagemill::kv_cache {
namespace {

// Constants of docs/decisions/0163-the-cache-measures-what-protection-would-hit.md.
constexpr int32_t kMaxSample = 1000;  // blocks; with the null block, a table of 2048 slots
constexpr int64_t kForget = 20;       // each choice subtracts this part of the counted hits
constexpr int64_t kLruPercent = 105;  // LRU's hits count this much
constexpr int64_t kSwitchPercent = 101;  // of the current score, that another must exceed

constexpr int64_t kHit = 1024;

int32_t NumUsable(const std::vector<Block>& blocks) {
  return static_cast<int32_t>(blocks.size()) - 1;
}

}  // namespace

AdaptiveEviction::AdaptiveEviction(std::vector<Block>* blocks)
    : blocks_(blocks), order_(blocks, 0), sample_capacity_(std::max(1, NumUsable(*blocks))) {
  while (sample_capacity_ > kMaxSample) {
    sample_capacity_ /= 2;
    sample_mask_ = 2 * sample_mask_ + 1;
  }
  for (int32_t i = 0; i < kNumModels; ++i) {
    models_[i] = std::make_unique<MiniatureCache>(sample_capacity_, i);
  }
}

void AdaptiveEviction::Insert(BlockId id) {
  const Block& block = (*blocks_)[id.value()];
  const bool used = block.used;
  order_.Insert(id);
  if (block.hash.empty()) return;
  ++num_named_;
  // Not the low bits of the word, by which PrefixCache places content.
  if (used && ((block.hash.words[0] >> 40) & sample_mask_) == 0) Observe(block);
}

void AdaptiveEviction::Remove(BlockId id) {
  num_named_ -= !(*blocks_)[id.value()].hash.empty();
  order_.Remove(id);
}

void AdaptiveEviction::Observe(const Block& block) {
  // A block may have several pages; the models count blocks.
  const int64_t blocks = int64_t{sample_capacity_} * num_named_ / order_.size();
  const auto max_blocks = static_cast<int32_t>(std::max(int64_t{1}, blocks));
  for (int32_t i = 0; i < kNumModels; ++i) {
    if (models_[i]->Use(block.hash, block.group, max_blocks)) hits_[i] += kHit;
  }
  if (++num_uses_ >= sample_capacity_) Choose();
}

int64_t AdaptiveEviction::Score(int32_t quarters) const {
  return quarters == 0 ? hits_[0] * kLruPercent / 100 : hits_[quarters];
}

void AdaptiveEviction::Choose() {
  num_uses_ = 0;
  int32_t best = chosen_;
  for (int32_t i = 0; i < kNumModels; ++i) {
    if (Score(i) > Score(best)) best = i;
  }
  if (Score(best) > Score(chosen_) * kSwitchPercent / 100) {
    chosen_ = best;
    const int64_t usable = NumUsable(*blocks_);
    order_.set_max_protected(static_cast<int32_t>(usable * chosen_ / kNumModels));
  }
  for (int64_t& hits : hits_) hits -= hits / kForget;
}

Status AdaptiveEviction::CheckIntegrity(int32_t num_pages) const {
  for (const auto& model : models_) PAGEMILL_RETURN_IF_ERROR(model->CheckIntegrity());
  if (num_named_ < 0 || num_named_ > num_pages) return Internal("adaptive: too many named pages");
  return order_.CheckIntegrity(num_pages);
}

}  // namespace pagemill::kv_cache
