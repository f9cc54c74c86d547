#include "cc/runner/speculation.h"

namespace pagemill::runner {
namespace {

// Does the step run one known token of the request, and drafts behind it?
bool Decodes(const step::ScheduledRequest& entry) {
  return entry.sample && entry.token_ids.size() == 1;
}

}  // namespace

Speculation::Speculation(sampling::DraftProposer* proposer, const Clock* clock,
                         const SpeculationOptions& options)
    : proposer_(proposer),
      clock_(clock),
      options_(options),
      step_costs_(static_cast<size_t>(options.max_draft_tokens) + 1),
      lengths_(static_cast<size_t>(options.max_num_seqs)) {}

void Speculation::Start(step::RequestIndex index, const step::Request& request,
                        std::span<const int32_t> output_token_ids) {
  text_ = request.prompt_token_ids;
  text_.insert(text_.end(), output_token_ids.begin(), output_token_ids.end());
  proposer_->Start(index, text_);
  lengths_[index.value()] = sampling::DraftLength();
}

void Speculation::Release(step::RequestIndex index) { proposer_->Start(index, {}); }

void Speculation::MeasureStep(const step::StepPlan& plan) {
  int32_t num_tokens = 0, num_sampling = 0;
  bool all_decode = true;
  for (const step::ScheduledRequest& entry : plan.scheduled) {
    num_tokens += entry.num_tokens();
    num_sampling += entry.sample;
    all_decode = all_decode && Decodes(entry);
  }
  const int64_t now_ns = clock_->NowNanos();
  if (all_decode && now_ns > begun_ns_) {
    costs_.Observe(num_tokens, SecondsBetween(begun_ns_, now_ns));
  }
  for (size_t k = 0; num_sampling > 0 && k < step_costs_.size(); ++k) {
    step_costs_[k] = costs_.Of(num_sampling * static_cast<int32_t>(1 + k));
  }
}

void Speculation::EndStep(const step::StepPlan& plan, step::StepResult* result) {
  MeasureStep(plan);
  for (size_t i = 0; i < plan.scheduled.size(); ++i) {
    const step::ScheduledRequest& entry = plan.scheduled[i];
    step::RequestResult& sampled = result->results[i];
    if (!entry.sample || sampled.sampled_token_ids.empty()) continue;
    proposer_->Observe(entry.index, sampled.sampled_token_ids);
    sampling::DraftLength& length = lengths_[entry.index.value()];
    if (Decodes(entry)) {
      length.Observe(step_costs_, static_cast<int32_t>(entry.draft_token_ids.size()),
                     static_cast<int32_t>(sampled.sampled_token_ids.size()) - 1);
    }
    const int32_t most = length.Next(step_costs_);
    if (most > 0) proposer_->Propose(entry.index, most, &sampled.draft_token_ids);
  }
}

}  // namespace pagemill::runner
