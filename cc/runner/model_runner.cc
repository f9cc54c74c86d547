#include "cc/runner/model_runner.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "cc/device/capabilities.h"
#include "cc/step/kv_group_options.h"

namespace pagemill::runner {
namespace {

Status CheckPositive(const char* field, int32_t value) {
  if (value >= 1) return OkStatus();
  return InvalidArgument(std::string(field) + " must be at least 1, got " + std::to_string(value));
}

// Batches have a block table for each group, an entry for each block of tokens.
Status CheckGroup(const step::KvGroupOptions& group) {
  if (group.pages_per_block != 1) {
    return InvalidArgument("kv_groups: a block of \"" + group.kind + "\" layers has " +
                           std::to_string(group.pages_per_block) +
                           " pages, but this runner gives it one");
  }
  if (group.kind == "state_space" && group.checkpoints == step::StateCheckpoints::kNone) {
    return Unimplemented("kv_groups: this runner wants checkpoints of states");
  }
  for (const char* kind : {"full", "mla", "sliding_window", "chunked_local", "state_space"}) {
    if (group.kind == kind) return OkStatus();
  }
  return Unimplemented("kv_groups: this runner has no arrays for \"" + group.kind + "\" layers");
}

Status CheckLimits(const engine::RunnerLimits& limits) {
  if (limits.max_draft_tokens < 0) {
    return InvalidArgument("max_draft_tokens must be at least 0, got " +
                           std::to_string(limits.max_draft_tokens));
  }
  PM_RETURN_IF_ERROR(CheckPositive("max_num_tokens", limits.max_num_tokens));
  PM_RETURN_IF_ERROR(CheckPositive("max_num_seqs", limits.max_num_seqs));
  PM_RETURN_IF_ERROR(CheckPositive("max_num_logits_rows", limits.max_num_logits_rows));
  PM_RETURN_IF_ERROR(CheckPositive("max_model_len", limits.max_model_len));
  PM_RETURN_IF_ERROR(CheckPositive("vocab_size", limits.vocab_size));
  PM_RETURN_IF_ERROR(CheckPositive("num_blocks", limits.num_blocks));
  PM_RETURN_IF_ERROR(CheckPositive("block_size", limits.block_size));
  for (const step::KvGroupOptions& group : limits.kv_groups) PM_RETURN_IF_ERROR(CheckGroup(group));
  return OkStatus();
}

engine::RunnerLimits WithMasks(engine::RunnerLimits limits) {
  limits.token_masks = true;
  return limits;
}

// Was some request of the plan in the step before, or in one before that?
bool HasRequestThatGoesOn(const step::StepPlan& plan) {
  return std::any_of(plan.scheduled.begin(), plan.scheduled.end(),
                     [](const step::ScheduledRequest& entry) { return entry.start == nullptr; });
}

}  // namespace

StatusOr<std::unique_ptr<ModelRunner>> ModelRunner::Create(
    program::Executor* executor, device::ThreadPool* pool, const engine::RunnerLimits& limits,
    step::PageStore* pages, std::unique_ptr<sampling::DraftProposer> proposer,
    std::unique_ptr<DraftModel> draft_model) {
  PM_RETURN_IF_ERROR(CheckLimits(limits));
  return std::unique_ptr<ModelRunner>(
      new ModelRunner(executor, pool, limits, pages, std::move(proposer), std::move(draft_model)));
}

ModelRunner::ModelRunner(program::Executor* executor, device::ThreadPool* pool,
                         const engine::RunnerLimits& limits, step::PageStore* pages,
                         std::unique_ptr<sampling::DraftProposer> proposer,
                         std::unique_ptr<DraftModel> draft_model)
    : Runner(WithMasks(limits), pages),
      executor_(executor),
      draft_model_(std::move(draft_model)),
      batch_(limits,
             draft_model_ == nullptr ? limits.kv_groups.size() : draft_model_->first_kv_group()),
      sampler_({.max_num_seqs = limits.max_num_seqs,
                .vocab_size = limits.vocab_size,
                .capabilities = device::DetectCapabilities()},
               pool),
      masks_(limits.max_num_seqs, limits.vocab_size),
      proposer_(std::move(proposer)) {
  sampling::DraftProposer* drafts = draft_model_.get();
  if (drafts == nullptr) drafts = proposer_.get();
  if (drafts == nullptr || limits.max_draft_tokens == 0) return;
  speculation_.emplace(drafts, &clock_,
                       SpeculationOptions{.max_num_seqs = limits.max_num_seqs,
                                          .max_draft_tokens = limits.max_draft_tokens},
                       draft_model_.get());
}

Status ModelRunner::Execute(const step::StepPlan& plan) {
  stopwatch_.Begin(HasRequestThatGoesOn(plan));
  if (speculation_) speculation_->BeginStep();
  PM_RETURN_IF_ERROR(batch_.CheckSlots(plan));
  ApplyToSlots(plan);  // first, so that a step that fails leaves no request behind in them
  PM_RETURN_IF_ERROR(batch_.Apply(plan));
  PM_RETURN_IF_ERROR(CheckDrafts(plan));
  if (draft_model_ != nullptr && !plan.empty()) PM_RETURN_IF_ERROR(MakeDrafts(plan));
  if (!plan.empty()) PM_RETURN_IF_ERROR(RunForward(plan));
  plan_ = &plan;
  return OkStatus();
}

Status ModelRunner::CheckDrafts(const step::StepPlan& plan) const {
  const auto most = static_cast<size_t>(limits().max_draft_tokens);
  for (const step::ScheduledRequest& entry : plan.scheduled) {
    if (entry.draft_token_ids.size() <= most) continue;
    return Internal("step plan, slot " + std::to_string(entry.index.value()) + ": it has " +
                    std::to_string(entry.draft_token_ids.size()) +
                    " drafts, more than max_draft_tokens = " + std::to_string(most));
  }
  return OkStatus();
}

Status ModelRunner::MakeDrafts(const step::StepPlan& plan) {
  PM_RETURN_IF_ERROR(draft_model_->Draft(plan));
  for (size_t i = 0; i < plan.scheduled.size(); ++i) {
    batch_.SetDrafts(i, draft_model_->token_ids(i));
  }
  return OkStatus();
}

Status ModelRunner::RunForward(const step::StepPlan& plan) {
  stopwatch_.Lap(&StepTimes::batch_s);
  ops::StepBatch batch = batch_.view();
  if (WantsOnlyMaxima(plan)) batch.argmax_columns = limits().vocab_size;
  FillMasks(plan);
  Status status = executor_->Execute(batch, &output_);
  if (status.ok()) status = CheckOutput();
  if (!status.ok()) {
    masks_.Wait();
    return status;
  }
  stopwatch_.Lap(&StepTimes::model_s);
  return OkStatus();
}

Status ModelRunner::Sample() {
  if (plan_ == nullptr) return FailedPrecondition("no step was executed that is not sampled");
  const step::StepPlan& plan = *std::exchange(plan_, nullptr);
  step::StepResult result;
  result.step_id = plan.step_id;
  result.results.resize(plan.scheduled.size());
  for (size_t i = 0; i < plan.scheduled.size(); ++i) {
    result.results[i].index = plan.scheduled[i].index;
  }
  if (!plan.empty()) {
    masks_.Wait();
    SampleRows(plan, &result);
    TakePooled(plan, &result);
    if (speculation_) speculation_->EndStep(plan, &result);
    stopwatch_.Lap(&StepTimes::sampling_s);
    stopwatch_.End(program::KindOf(batch_.view()));
  }
  finished_.push_back(std::move(result));
  return OkStatus();
}

StatusOr<step::StepResult> ModelRunner::Collect() {
  if (finished_.empty()) return FailedPrecondition("no step was sampled that is not collected");
  step::StepResult result = std::move(finished_.front());
  finished_.pop_front();
  return result;
}

void ModelRunner::ApplyToSlots(const step::StepPlan& plan) {
  for (step::RequestIndex index : plan.released) {
    sampler_.Release(index);
    masks_.Release(index);
    if (speculation_) speculation_->Release(index);
  }
  for (const step::ScheduledRequest& entry : plan.scheduled) {
    if (entry.start == nullptr || entry.start->pooling) continue;
    masks_.Start(entry.index, *entry.start, entry.resumed_output_token_ids);
    sampler_.Start(entry.index, entry.start, entry.resumed_output_token_ids,
                   masks_.Holds(entry.index));
    if (speculation_) {
      speculation_->Start(entry.index, *entry.start, entry.resumed_output_token_ids);
    }
  }
}

void ModelRunner::FillMasks(const step::StepPlan& plan) {
  masks_.BeginStep();
  for (size_t i = 0; i < plan.scheduled.size(); ++i) {
    const step::ScheduledRequest& entry = plan.scheduled[i];
    if (!entry.sample || !masks_.Holds(entry.index)) continue;
    masks_.AddRows(entry.index, batch_.drafts(i, entry.draft_token_ids.size()));
  }
  masks_.Fill();
}

bool ModelRunner::WantsOnlyMaxima(const step::StepPlan& plan) const {
  return std::all_of(batch_.rows().begin(), batch_.rows().end(), [&](const BatchRow& row) {
    return row.prompt_token_id < 0 &&
           sampler_.NeedsOnlyMaximum(plan.scheduled[static_cast<size_t>(row.entry)].index);
  });
}

Status ModelRunner::CheckOutput() const {
  const size_t rows = batch_.rows().size();
  if (!output_.maxima.empty()) {
    if (output_.maxima.size() == rows) return OkStatus();
    return Internal("the executor gave " + std::to_string(output_.maxima.size()) +
                    " maxima of logits for " + std::to_string(rows) + " rows");
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

// The batch's rows of logits as rows to sample from.
void ModelRunner::AddRows(const step::StepPlan& plan) {
  const bool by_maxima = !output_.maxima.empty();
  const TensorView logits = output_.logits();
  size_t num_masks = 0, num_drafts = 0;
  rows_.clear();
  for (size_t i = 0; i < batch_.rows().size(); ++i) {
    const BatchRow& row = batch_.rows()[i];
    sampling::LogitsRow& added = rows_.emplace_back();
    added.index = plan.scheduled[static_cast<size_t>(row.entry)].index;
    if (by_maxima) {
      added.maximum = &output_.maxima[i];
    } else {
      added.logits = logits.Row<const float>(static_cast<int64_t>(i));
    }
    added.prompt_token_id = row.prompt_token_id;
    added.draft_token_id = row.draft_token_id;
    if (row.draft_token_id >= 0 && draft_model_ != nullptr) {
      added.draft_probabilities = draft_model_->probabilities(num_drafts++);
    }
    if (row.prompt_token_id >= 0 || !masks_.Holds(added.index)) continue;
    if (masks_.status(added.index).ok()) added.mask = masks_.row(num_masks);
    ++num_masks;
  }
}

void ModelRunner::SampleRows(const step::StepPlan& plan, step::StepResult* result) {
  AddRows(plan);
  row_outputs_.assign(rows_.size(), {});
  sampler_.Run(rows_, row_outputs_);
  for (size_t i = 0; i < rows_.size(); ++i) {
    step::RequestResult& target = result->results[static_cast<size_t>(batch_.rows()[i].entry)];
    sampling::RowOutput& row = row_outputs_[i];
    if (row.failure.ok()) row.failure = masks_.status(target.index);
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
  for (const step::RequestResult& taken : result->results) {
    if (masks_.Holds(taken.index)) masks_.Observe(taken.index, taken.sampled_token_ids);
  }
}

void ModelRunner::TakePooled(const step::StepPlan& plan, step::StepResult* result) {
  const TensorView pooled = output_.pooled();
  for (size_t i = 0; i < plan.scheduled.size(); ++i) {
    const step::ScheduledRequest& entry = plan.scheduled[i];
    const step::Request& request = *batch_.request(entry.index);
    const size_t computed = static_cast<size_t>(entry.num_computed_tokens) + entry.token_ids.size();
    if (!request.pooling || computed < request.prompt_token_ids.size()) continue;
    step::RequestResult& target = result->results[i];
    if (pooled.rank != 2) {
      target.failure = FailedPrecondition("this model does not pool: it makes no embeddings");
      continue;
    }
    const float* row = pooled.Row<const float>(static_cast<int64_t>(i));
    target.pooled.assign(row, row + pooled.shape[1]);
    for (float x : target.pooled) {
      if (std::isfinite(x)) continue;
      target.pooled.clear();
      target.failure = Internal("the model's pooled output is not finite");
      break;
    }
  }
}

void ModelRunner::CheckIntegrity() const {
  batch_.CheckIntegrity();
  if (draft_model_ != nullptr) draft_model_->CheckIntegrity();
  sampler_.CheckIntegrity();
}

}  // namespace pagemill::runner
