// Plans made ahead of results: what the step before gives to the next one.
#include <algorithm>
#include <string>

#include "cc/runner/model_runner.h"

namespace pagemill::runner {
namespace {

// Does the entry run a token that was not known when it was planned?
bool IsAhead(const step::ScheduledRequest& entry) {
  return !entry.token_ids.empty() && entry.token_ids.back() == step::kPlaceholderTokenId;
}

}  // namespace

// The plan as it is run. Entries that were planned behind drafts begin where those that were
// accepted end, and get the drafts that were proposed since. The steps that verify drafts are
// finished; those that follow give one token each, which may be in flight.
const step::StepPlan& ModelRunner::Resolve(const step::StepPlan& plan) {
  if (limits().max_draft_tokens == 0 ||
      std::none_of(plan.scheduled.begin(), plan.scheduled.end(), IsAhead)) {
    return plan;
  }
  exact_ = plan;
  for (step::ScheduledRequest& entry : exact_.scheduled) {
    const Slot& slot = slots_[entry.index.value()];
    if (!IsAhead(entry) || slot.step == 0) continue;
    entry.num_computed_tokens = slot.num_tokens - 1;
    std::vector<int32_t>& drafts = entry.draft_token_ids;
    while (!drafts.empty() && slot.token_id < 0) FinishOldest();  // which proposes
    drafts.resize(std::min(drafts.size(), slot.drafts.size()));
    std::copy_n(slot.drafts.begin(), drafts.size(), drafts.begin());
    if (slot.token_id >= 0) entry.token_ids.back() = slot.token_id;
  }
  return exact_;
}

// Each becomes a token that is known, or the row of the step before that it comes from.
Status ModelRunner::FillPlaceholders() {
  for (const PlaceholderToken& placeholder : batch_.placeholders()) {
    const Slot& slot = slots_[placeholder.index.value()];
    if (slot.step == 0) {
      return Internal("step plan, slot " + std::to_string(placeholder.index.value()) +
                      ": a placeholder where no token was sampled");
    }
    const bool in_step_before = slot.step == num_started_ && slot.row >= 0;
    while (slot.token_id < 0 && !in_step_before) FinishOldest();
    batch_.SetToken(placeholder.token,
                    slot.token_id >= 0 ? slot.token_id : program::TokenOfRow(slot.row));
  }
  return OkStatus();
}

void ModelRunner::NoteSamples(const StepInFlight& step) {
  for (size_t i = 0; i < step.rows.size(); ++i) {
    const BatchRow& row = step.rows[i];
    if (row.prompt_token_id >= 0) continue;
    Slot& slot = slots_[step.entries[static_cast<size_t>(row.entry)].index.value()];
    // Behind drafts it depends on them which row the token comes from.
    const bool first = slot.step != step.number;
    slot.row = first ? static_cast<int32_t>(i) : kNoRow;
    slot.num_tokens += first;
    slot.step = step.number;
    slot.token_id = kInFlight;
  }
}

// Later steps read here what their placeholders stand for. A request that has got no token fails,
// and the results of later steps are dropped for it: any token will do there.
void ModelRunner::SettleSamples(const StepInFlight& step, const step::StepResult& result) {
  for (size_t i = 0; i < step.entries.size(); ++i) {
    Slot& slot = slots_[step.entries[i].index.value()];
    if (slot.token_id != kInFlight || slot.step != step.number) continue;
    const std::vector<int32_t>& sampled = result.results[i].sampled_token_ids;
    slot.token_id = sampled.empty() ? 0 : sampled.back();
    if (limits().max_draft_tokens == 0) continue;
    if (!sampled.empty()) slot.num_tokens += static_cast<int32_t>(sampled.size()) - 1;
    slot.drafts = result.results[i].draft_token_ids;
  }
}

}  // namespace pagemill::runner
