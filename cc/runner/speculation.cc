#include "cc/runner/speculation.h"

#include <algorithm>

namespace pagemill::runner {
namespace {

// A prompt that is computed in vain costs more than a draft, so prompts are tried less often.
constexpr int32_t kMaxStepsBetweenPrompts = 1024;

// True if the step runs one known token of the request, and drafts behind it.
bool Decodes(const StepEntry& entry) { return entry.samples && entry.num_tokens == 1; }

}  // namespace

Speculation::Speculation(sampling::DraftProposer* proposer, const Clock* clock,
                         const SpeculationOptions& options, DraftModel* model)
    : proposer_(proposer),
      model_(model),
      clock_(clock),
      options_(options),
      step_costs_(static_cast<size_t>(options.max_draft_tokens) + 1),
      lengths_(static_cast<size_t>(options.max_num_seqs)),
      overall_({.max_trial_interval_steps = kMaxStepsBetweenPrompts}),
      held_(static_cast<size_t>(options.max_num_seqs)) {}

void Speculation::Start(step::RequestIndex index, const step::Request& request,
                        std::span<const int32_t> output_token_ids) {
  text_ = request.prompt_token_ids.ToVector();
  text_.insert(text_.end(), output_token_ids.begin(), output_token_ids.end());
  proposer_->Start(index, text_);
  proposer_->Share(index, request.cache_salt);
  lengths_[index.value()] = sampling::DraftLength();
  num_held_ += !held_[index.value()];
  held_[index.value()] = true;
  if (model_ != nullptr) model_->Follow(index, IsWorthFollowing(request));
}

void Speculation::Release(step::RequestIndex index) {
  proposer_->Start(index, {});
  num_held_ -= held_[index.value()];
  held_[index.value()] = false;
}

bool Speculation::IsWorthFollowing(const step::Request& request) {
  if (request.sampling.max_tokens <= 1) return false;  // the only token needs no draft
  return overall_.Next(StepSeconds(num_held_, 0)) > 0;
}

std::span<const double> Speculation::StepSeconds(int32_t num_requests, int32_t num_waiting) {
  // Before a step was measured, drafts look free, and are tried.
  const bool with_model = model_ != nullptr && costs_.measured();
  for (int32_t k = 0; k <= options_.max_draft_tokens; ++k) {
    double& seconds = step_costs_[static_cast<size_t>(k)];
    seconds = costs_.Of(num_requests * (1 + k));
    if (with_model) seconds += model_->Seconds(num_requests, k, num_waiting);
  }
  return step_costs_;
}

void Speculation::MeasureStep(const StepInFlight& step) {
  int32_t num_tokens = 0;
  bool all_decode = true;
  for (const StepEntry& entry : step.entries) {
    num_tokens += entry.num_tokens + entry.num_drafts;
    all_decode = all_decode && Decodes(entry);
  }
  const int64_t begun_ns = std::max(step.begun_ns, ended_ns_);
  ended_ns_ = clock_->NowNanos();
  const double seconds = SecondsBetween(begun_ns, ended_ns_) - step.draft_seconds;
  if (all_decode && seconds > 0.0) costs_.Observe(num_tokens, seconds);
}

void Speculation::EndStep(const StepInFlight& step, step::StepResult* result) {
  MeasureStep(step);
  int32_t num_sampling = 0;
  for (const StepEntry& entry : step.entries) num_sampling += entry.samples;
  for (size_t i = 0; i < step.entries.size(); ++i) {
    const StepEntry& entry = step.entries[i];
    step::RequestResult& sampled = result->results[i];
    if (!entry.samples || sampled.sampled_token_ids.empty()) continue;
    const int32_t caught_up = model_ == nullptr ? 0 : model_->num_caught_up(entry.index);
    proposer_->Observe(entry.index, sampled.sampled_token_ids);
    sampling::DraftLength& length = lengths_[entry.index.value()];
    if (Decodes(entry) && !entry.forced) {
      const auto num_accepted = static_cast<int32_t>(sampled.sampled_token_ids.size()) - 1;
      length.Observe(StepSeconds(num_sampling, caught_up), entry.num_drafts, num_accepted);
      if (model_ != nullptr) {
        overall_.Observe(StepSeconds(num_sampling, 0), entry.num_drafts, num_accepted);
      }
    }
    const int32_t waiting = model_ == nullptr ? 0 : model_->num_waiting(entry.index);
    const int32_t most = length.Next(StepSeconds(num_sampling, waiting));
    if (most > 0) proposer_->Propose(entry.index, most, &sampled.draft_token_ids);
  }
}

}  // namespace pagemill::runner
