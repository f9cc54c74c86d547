// Finishes steps whose forward pass is over: sampling, results, drafts.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cc/runner/model_runner.h"

namespace pagemill::runner {
namespace {

constexpr std::string_view kRoutedExperts = "experts.";

// Rows [first, first + count) of `pooled`, one after the other.
void TakeRows(const TensorView& pooled, int64_t first, int64_t count, step::RequestResult* target) {
  if (pooled.rank != 2) {
    target->failure = FailedPrecondition("this model does not pool: it makes no embeddings");
    return;
  }
  for (int64_t i = first; i < first + count; ++i) {
    const float* row = pooled.Row<const float>(i);
    target->pooled.insert(target->pooled.end(), row, row + pooled.shape[1]);
  }
  const auto is_finite = [](float x) { return std::isfinite(x); };
  if (std::all_of(target->pooled.begin(), target->pooled.end(), is_finite)) return;
  target->pooled.clear();
  target->failure = Internal("the model's pooled output is not finite");
}

}  // namespace

// Makes room for a step, and finishes the steps that the host must sample before it.
void ModelRunner::FinishForNextStep() {
  size_t num_needed = 0;
  for (size_t i = 0; i < steps_.size(); ++i) {
    if (steps_[i].needs_host) num_needed = i + 1;
  }
  for (size_t i = 0; i < num_needed; ++i) FinishOldest();
  while (num_enqueued_ >= executor_->max_steps_in_flight()) FinishOldest();
}

void ModelRunner::FinishOldest() {
  StepInFlight& step = steps_.oldest();
  step::StepResult result;
  result.step_id = step.step_id;
  result.results.resize(step.entries.size());
  for (size_t i = 0; i < step.entries.size(); ++i) {
    result.results[i].index = step.entries[i].index;
    result.results[i].num_missing_drafts = step.entries[i].num_missing_drafts;
  }
  Status status = step.enqueued ? Finish(&step, &result) : OkStatus();
  SettleSamples(step, result);
  if (status.ok()) {
    finished_.emplace_back(std::move(result));
  } else {
    finished_.emplace_back(std::move(status));
  }
  steps_.PopOldest();
}

Status ModelRunner::Finish(StepInFlight* step, step::StepResult* result) {
  stopwatch_.Resume();
  --num_enqueued_;
  PAGEMILL_RETURN_IF_ERROR(executor_->Collect(&output_));
  stopwatch_.Lap(&StepTimes::collect_s, &step->times);
  if (!step->sampled.ok()) return step->sampled;
  PAGEMILL_RETURN_IF_ERROR(CheckOutput(*step));
  if (output_.maxima.empty()) {
    SampleRows(*step, result);
  } else {
    TakeFoundTokens(*step, result);
  }
  ObserveSamples(*step, *result);
  TakePooled(*step, result);
  PAGEMILL_RETURN_IF_ERROR(TakeRoutedExperts(*step, result));
  PAGEMILL_RETURN_IF_ERROR(FollowWithDrafts(step, *result));
  if (speculation_) speculation_->EndStep(*step, result);
  if (limits().max_forced_tokens > 0) ProposeForced(*step, result);
  stopwatch_.Lap(&StepTimes::sampling_s, &step->times);
  stopwatch_.End(step->kind, step->times);
  return OkStatus();
}

Status ModelRunner::CheckOutput(const StepInFlight& step) const {
  const size_t rows = step.rows.size();
  if (!output_.maxima.empty()) {
    if (output_.maxima.size() != rows) {
      return Internal("the executor gave " + std::to_string(output_.maxima.size()) +
                      " maxima of logits for " + std::to_string(rows) + " rows");
    }
    if (output_.scores.size() == step.scored.size()) return OkStatus();
    return Internal("the executor scored " + std::to_string(output_.scores.size()) + " of " +
                    std::to_string(step.scored.size()) + " rows");
  }
  if (rows == 0) return OkStatus();
  const TensorView logits = output_.logits();
  if (logits.rank != 2) {
    return FailedPrecondition("this model has no logits: it cannot generate or score tokens");
  }
  if (logits.shape[1] < limits().vocab_size) {
    return Internal("the program's logits have " + std::to_string(logits.shape[1]) +
                    " columns, fewer than vocab_size = " + std::to_string(limits().vocab_size));
  }
  return OkStatus();
}

bool ModelRunner::Holds(const StepEntry& entry) const {
  return slots_[entry.index.value()].holder == entry.holder;
}

// The executor found the token of each row, or scored that of a prompt. Those of a request end with
// the first that is not the draft which follows its row.
void ModelRunner::TakeFoundTokens(const StepInFlight& step, step::StepResult* result) {
  int32_t ended = -1;  // the entry that has no more tokens
  size_t num_scored = 0;
  for (size_t i = 0; i < step.rows.size(); ++i) {
    const BatchRow& row = step.rows[i];
    const size_t s = num_scored;
    const bool scored = s < step.scored.size() && step.scored[s].row == static_cast<int32_t>(i);
    num_scored += scored;
    if (row.entry == ended || !Holds(step.entries[static_cast<size_t>(row.entry)])) continue;
    step::RequestResult& target = result->results[static_cast<size_t>(row.entry)];
    const ops::RowMaximum& found = output_.maxima[i];
    const bool is_prompt = row.prompt_token_id >= 0;
    Status taken = is_prompt ? OkStatus() : sampler_.TakeFound(target.index, found);
    if (taken.ok() && scored) taken = sampling::CheckScored(found, output_.scores[s]);
    const Status& failure = taken.ok() ? FailureOf(target.index) : taken;
    if (!failure.ok()) {
      target.failure = failure;
      ended = row.entry;
      continue;
    }
    const int32_t token_id = is_prompt ? row.prompt_token_id : found.column;
    if (scored) {
      (is_prompt ? target.prompt_logprobs : target.logprobs)
          .push_back(sampling::LogprobsOf(token_id, output_.scores[s], step.scored[s].num_top,
                                          limits().vocab_size));
    }
    if (is_prompt) continue;
    target.sampled_token_ids.push_back(token_id);
    if (token_id != row.draft_token_id) ended = row.entry;
  }
}

// The step's rows of logits as rows to sample from.
void ModelRunner::AddRows(const StepInFlight& step) {
  const TensorView logits = output_.logits();
  size_t num_masks = 0, num_drafts = 0;
  rows_.clear();
  sampled_rows_.clear();
  for (size_t i = 0; i < step.rows.size(); ++i) {
    const BatchRow& row = step.rows[i];
    const StepEntry& entry = step.entries[static_cast<size_t>(row.entry)];
    const size_t draft = num_drafts;
    num_drafts += row.draft_token_id >= 0;
    if (!Holds(entry)) continue;
    sampled_rows_.push_back(i);
    sampling::LogitsRow& added = rows_.emplace_back();
    added.index = entry.index;
    added.logits = logits.Row<const float>(static_cast<int64_t>(i));
    added.prompt_token_id = row.prompt_token_id;
    added.draft_token_id = row.draft_token_id;
    if (row.draft_token_id >= 0 && draft_model_ != nullptr) {
      added.draft_probabilities = draft_model_->probabilities(draft);
    }
    if (row.prompt_token_id >= 0 || !masks_.Holds(added.index)) continue;
    if (masks_.status(added.index).ok()) added.mask = masks_.row(num_masks);
    ++num_masks;
  }
}

void ModelRunner::SampleRows(const StepInFlight& step, step::StepResult* result) {
  AddRows(step);
  row_outputs_.assign(rows_.size(), {});
  sampler_.Run(rows_, row_outputs_);
  for (size_t i = 0; i < rows_.size(); ++i) {
    const BatchRow& sampled = step.rows[sampled_rows_[i]];
    step::RequestResult& target = result->results[static_cast<size_t>(sampled.entry)];
    sampling::RowOutput& row = row_outputs_[i];
    if (row.failure.ok()) row.failure = FailureOf(target.index);
    if (!row.failure.ok()) {
      target.failure = std::move(row.failure);
      continue;
    }
    if (row.token_id < 0) continue;  // behind a rejected draft
    const bool is_prompt = rows_[i].prompt_token_id >= 0;
    if (!is_prompt) target.sampled_token_ids.push_back(row.token_id);
    if (row.has_logprobs) {
      (is_prompt ? target.prompt_logprobs : target.logprobs).push_back(std::move(row.logprobs));
    }
  }
}

void ModelRunner::ObserveSamples(const StepInFlight& step, const step::StepResult& result) {
  for (size_t i = 0; i < step.entries.size(); ++i) {
    const step::RequestIndex index = step.entries[i].index;
    if (!masks_.Holds(index) || !Holds(step.entries[i])) continue;
    masks_.Observe(index, result.results[i].sampled_token_ids);
  }
}

// Later steps resolve their placeholders here. A request without a token fails, and its results of
// later steps are dropped: any token will do there.
void ModelRunner::SettleSamples(const StepInFlight& step, const step::StepResult& result) {
  for (size_t i = 0; i < step.entries.size(); ++i) {
    Slot& slot = slots_[step.entries[i].index.value()];
    if (slot.token_id != kInFlight || slot.step != step.number) continue;
    const step::TokenList& sampled = result.results[i].sampled_token_ids;
    slot.token_id = sampled.empty() ? 0 : sampled.back();
    if (max_drafts() == 0) continue;
    if (!sampled.empty()) slot.num_tokens += static_cast<int32_t>(sampled.size()) - 1;
    slot.drafts = result.results[i].draft_token_ids;
  }
}

Status ModelRunner::FollowWithDrafts(StepInFlight* step, const step::StepResult& result) {
  if (draft_model_ == nullptr || !draft_model_->reads_states()) return OkStatus();
  target_tokens_.clear();
  int64_t first_row = 0;
  for (size_t i = 0; i < step->entries.size(); ++i) {
    const StepEntry& entry = step->entries[i];
    const auto num_sampled = static_cast<int32_t>(result.results[i].sampled_token_ids.size());
    const int32_t num_accepted = std::max(0, num_sampled - 1);
    if (Holds(entry)) {
      target_tokens_.push_back({.index = entry.index,
                                .first_row = first_row,
                                .count = entry.num_tokens + num_accepted});
    }
    first_row += entry.num_tokens + entry.num_drafts;
  }
  PAGEMILL_RETURN_IF_ERROR(
      draft_model_->FollowTarget(target_tokens_, output_.Find(kDraftStates)));
  step->draft_seconds += draft_model_->last_seconds();
  return OkStatus();
}

// In place of what speculation proposes: these drafts are right, whatever they cost.
void ModelRunner::ProposeForced(const StepInFlight& step, step::StepResult* result) {
  if (draft_model_ != nullptr) return;  // its proposals are numbers of drafts
  for (size_t i = 0; i < step.entries.size(); ++i) {
    const StepEntry& entry = step.entries[i];
    Slot& slot = slots_[entry.index.value()];
    step::RequestResult& sampled = result->results[i];
    slot.forced = false;
    const bool has_all = static_cast<int32_t>(sampled.sampled_token_ids.size()) > entry.num_drafts;
    if (!entry.samples || !has_all || !Holds(entry) || !masks_.Holds(entry.index)) continue;
    const std::span<const int32_t> forced =
        masks_.ForcedBehind(entry.index, sampled.sampled_token_ids.back());
    if (forced.empty()) continue;
    sampled.draft_token_ids.assign(forced.begin(), forced.end());
    slot.forced = true;
  }
}

const Status& ModelRunner::FailureOf(step::RequestIndex index) const {
  if (!masks_.status(index).ok() || adapters_ == nullptr) return masks_.status(index);
  return adapters_->status(index);
}

// The choices of all layers, for each token that a request runs and for its accepted drafts.
Status ModelRunner::TakeRoutedExperts(const StepInFlight& step, step::StepResult* result) const {
  const auto wanted = [](const StepEntry& entry) { return entry.routed_experts; };
  if (std::none_of(step.entries.begin(), step.entries.end(), wanted)) return OkStatus();
  std::vector<TensorView> layers;
  int64_t num_choices = 0;
  for (const program::OutputView& output : output_.outputs) {
    if (!output.name.starts_with(kRoutedExperts)) continue;
    if (output.view.rank != 2 || output.view.dtype != DType::kI32) {
      return Internal("the program's " + std::string(output.name) + " are not i32 of two dimensions");
    }
    layers.push_back(output.view);
    num_choices += output.view.shape[1];
  }
  if (num_choices != limits().routed_experts_per_token) {
    return Internal("the program gives " + std::to_string(num_choices) +
                    " experts of a token instead of " +
                    std::to_string(limits().routed_experts_per_token));
  }
  int64_t first_row = 0;
  for (size_t i = 0; i < step.entries.size(); ++i) {
    const StepEntry& entry = step.entries[i];
    step::RequestResult& target = result->results[i];
    const auto num_sampled = static_cast<int64_t>(target.sampled_token_ids.size());
    const int64_t rows = entry.num_tokens + std::max<int64_t>(0, num_sampled - 1);
    for (int64_t row = first_row; entry.routed_experts && row < first_row + rows; ++row) {
      for (const TensorView& layer : layers) {
        const int32_t* ids = layer.Row<const int32_t>(row);
        target.routed_experts.insert(target.routed_experts.end(), ids, ids + layer.shape[1]);
      }
    }
    first_row += entry.num_tokens + entry.num_drafts;
  }
  return OkStatus();
}

// A pooling program gives a row for each request or for each of its tokens.
void ModelRunner::TakePooled(const StepInFlight& step, step::StepResult* result) {
  const auto pools = [](const StepEntry& entry) { return entry.pools; };
  if (std::none_of(step.entries.begin(), step.entries.end(), pools)) return;
  const TensorView pooled = output_.pooled();
  int64_t num_tokens = 0;
  for (const StepEntry& entry : step.entries) num_tokens += entry.num_tokens + entry.num_drafts;
  const bool by_token = pooled.rank == 2 && pooled.shape[0] == num_tokens;
  int64_t first = 0;
  for (size_t i = 0; i < step.entries.size(); ++i) {
    const int64_t rows = by_token ? step.entries[i].num_tokens : 1;
    step::RequestResult& target = result->results[i];
    if (step.entries[i].pools) target.failure = FailureOf(target.index);
    if (step.entries[i].pools && target.failure.ok()) TakeRows(pooled, first, rows, &target);
    first += rows + (by_token ? step.entries[i].num_drafts : 0);
  }
}

}  // namespace pagemill::runner
