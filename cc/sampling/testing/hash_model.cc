#include "cc/sampling/testing/hash_model.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "cc/base/status.h"
#include "cc/ops/sample/philox.h"
#include "cc/sampling/rejection_sampler.h"
#include "cc/step/token_mask.h"

namespace pagemill::sampling {
namespace {

// Random streams of a text, besides those of logits (one per token).
constexpr uint32_t kLogits = 100, kNoise = 101, kMask = 102, kLength = 103;

int32_t Largest(std::span<const float> x) {
  return static_cast<int32_t>(std::max_element(x.begin(), x.end()) - x.begin());
}

}  // namespace

uint64_t HashModel::HashOf(std::span<const int32_t> text) const {
  const auto context = text.last(std::min(text.size(), options_.context_tokens));
  uint64_t hash = options_.seed * 0x9E3779B97F4A7C15u + context.size();
  for (int32_t token : context) {
    hash = (hash ^ static_cast<uint64_t>(token + 1)) * 0xD6E8FEB86659FD93u;
    hash ^= hash >> 32;
  }
  return hash;
}

std::vector<float> HashModel::Logits(std::span<const int32_t> text) const {
  const uint64_t hash = HashOf(text);
  std::vector<float> logits(static_cast<size_t>(options_.vocab_size));
  for (size_t i = 0; i < logits.size(); ++i) {
    const double uniform = ops::PhiloxUniform(hash, i, kLogits);
    logits[i] = options_.scale * static_cast<float>(2.0 * uniform - 1.0);
  }
  return logits;
}

std::vector<float> HashModel::DraftLogits(std::span<const int32_t> text) const {
  const uint64_t hash = HashOf(text);
  std::vector<float> logits = Logits(text);
  for (size_t i = 0; i < logits.size(); ++i) {
    const double uniform = ops::PhiloxUniform(hash, i, kNoise);
    logits[i] += options_.draft_noise * static_cast<float>(2.0 * uniform - 1.0);
  }
  return logits;
}

std::vector<uint32_t> HashModel::Mask(std::span<const int32_t> text) const {
  const uint64_t hash = HashOf(text);
  std::vector<uint32_t> mask(step::NumMaskWords(options_.vocab_size));
  for (size_t w = 0; w < mask.size(); ++w) {
    mask[w] = static_cast<uint32_t>(ops::PhiloxUniform(hash, w + 1, kMask) * 0x1.0p32);
  }
  const double one = ops::PhiloxUniform(hash, 0, kMask) * options_.vocab_size;
  step::AllowToken(mask, static_cast<int32_t>(one));
  return mask;
}

std::vector<float> Softmax(std::span<const float> logits) {
  const float max = *std::max_element(logits.begin(), logits.end());
  std::vector<float> probabilities;
  double sum = 0.0;
  for (float x : logits) {
    probabilities.push_back(std::exp(x - max));
    sum += probabilities.back();
  }
  for (float& p : probabilities) p = static_cast<float>(p / sum);
  return probabilities;
}

void Generations::Add(std::shared_ptr<const step::Request> request) {
  const step::RequestIndex index(static_cast<int32_t>(all_.size()));
  sampler_->Start(index, request, {}, options_.masked);
  all_.push_back({.request = std::move(request)});
}

int32_t Generations::NumDrafts(const Generation& generation) const {
  if (options_.fixed_drafts) return options_.max_drafts;
  const double uniform =
      ops::PhiloxUniform(generation.request->sampling.seed, generation.outputs.size(), kLength);
  return static_cast<int32_t>(uniform * (options_.max_drafts + 1));
}

int32_t Generations::Draft(const Generation& generation, std::span<const int32_t> text,
                           int32_t position, RowData* data) const {
  const std::vector<float> logits = model_->DraftLogits(text);
  if (!options_.drawn) return Largest(logits);
  data->draft_probabilities = Softmax(logits);
  double left = UniformOf(generation.request->sampling.seed, position, Purpose::kDraft);
  int32_t token = 0;
  while (token + 1 < model_->vocab_size() && left >= data->draft_probabilities[token]) {
    left -= data->draft_probabilities[token++];
  }
  return token;
}

std::vector<int32_t> Generations::TextOf(const Generation& generation) const {
  std::vector<int32_t> text = generation.request->prompt_token_ids.ToVector();
  text.insert(text.end(), generation.outputs.begin(), generation.outputs.end());
  return text;
}

bool Generations::FindsTokens(size_t slot) const {
  return options_.by_maxima && all_[slot].request->sampling.greedy() &&
         sampler_->NeedsOnlyToken(step::RequestIndex(static_cast<int32_t>(slot)));
}

// Accepted drafts and the token behind them.
void Generations::TakeFound(size_t slot) {
  Generation& generation = all_[slot];
  const step::RequestIndex index(static_cast<int32_t>(slot));
  std::vector<int32_t> text = TextOf(generation);
  const int32_t num_drafts = NumDrafts(generation);
  generation.drafts += num_drafts;
  for (int32_t i = 0;; ++i) {
    const std::vector<float> logits = model_->Logits(text);
    const int32_t best = Largest(logits);
    PAGEMILL_CHECK(sampler_->TakeFound(index, {.logit = logits[best], .column = best}).ok());
    const auto position = static_cast<int32_t>(generation.outputs.size());
    generation.outputs.push_back(best);
    RowData data;
    if (i == num_drafts || Draft(generation, text, position, &data) != best) return;
    ++generation.accepted;
    text.push_back(best);
  }
}

void Generations::AddRows(size_t slot, std::vector<LogitsRow>* rows) {
  Generation& generation = all_[slot];
  const step::RequestIndex index(static_cast<int32_t>(slot));
  std::vector<int32_t> text = TextOf(generation);
  auto position = static_cast<int32_t>(generation.outputs.size());
  const int32_t num_drafts = NumDrafts(generation);
  for (int32_t i = 0; i <= num_drafts; ++i, ++position) {
    RowData& data = *data_.emplace_back(std::make_unique<RowData>());
    data.logits = model_->Logits(text);
    LogitsRow row = {.index = index, .logits = data.logits.data()};
    if (options_.masked) row.mask = data.mask = model_->Mask(text);
    if (i < num_drafts) {
      row.draft_token_id = Draft(generation, text, position, &data);
      if (options_.drawn) row.draft_probabilities = data.draft_probabilities.data();
      text.push_back(row.draft_token_id);
    }
    rows->push_back(row);
  }
  generation.drafts += num_drafts;
}

void Generations::Take(std::span<const LogitsRow> rows, std::span<const RowOutput> outputs) {
  for (size_t i = 0; i < rows.size(); ++i) {
    Generation& generation = all_[rows[i].index.value()];
    PAGEMILL_CHECK(outputs[i].failure.ok());
    if (outputs[i].token_id < 0) continue;
    if (outputs[i].token_id == rows[i].draft_token_id) ++generation.accepted;
    generation.outputs.push_back(outputs[i].token_id);
    if (outputs[i].has_logprobs) generation.logprobs.push_back(outputs[i].logprobs);
  }
}

void Generations::Run() {
  const auto wanted = static_cast<size_t>(options_.num_tokens);
  std::vector<LogitsRow> rows;
  std::vector<RowOutput> outputs;
  bool any = false;
  do {
    rows.clear();
    data_.clear();
    any = false;
    for (size_t slot = 0; slot < all_.size(); ++slot) {
      if (all_[slot].outputs.size() >= wanted) continue;
      any = true;
      if (FindsTokens(slot)) {
        TakeFound(slot);
      } else {
        AddRows(slot, &rows);
      }
    }
    outputs.assign(rows.size(), {});
    sampler_->Run(rows, outputs);
    Take(rows, outputs);
  } while (any);
  for (Generation& generation : all_) {
    generation.outputs.resize(wanted);
    generation.logprobs.resize(std::min(generation.logprobs.size(), wanted));
  }
}

}  // namespace pagemill::sampling
