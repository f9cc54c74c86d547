#include "cc/runner/model_runner.h"

#include <algorithm>
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
  const bool checkpoints = group.checkpoints != step::StateCheckpoints::kNone;
  if (group.kind == "state_space" && !checkpoints && group.recent_states == 0) {
    return InvalidArgument("kv_groups: states without checkpoints need recent_states >= 1");
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
  if (limits.max_forced_tokens < 0) {
    return InvalidArgument("max_forced_tokens must be at least 0, got " +
                           std::to_string(limits.max_forced_tokens));
  }
  if (limits.routed_experts_per_token < 0) {
    return InvalidArgument("routed_experts_per_token must be at least 0, got " +
                           std::to_string(limits.routed_experts_per_token));
  }
  PAGEMILL_RETURN_IF_ERROR(CheckPositive("max_num_tokens", limits.max_num_tokens));
  PAGEMILL_RETURN_IF_ERROR(CheckPositive("max_num_seqs", limits.max_num_seqs));
  PAGEMILL_RETURN_IF_ERROR(CheckPositive("max_num_logits_rows", limits.max_num_logits_rows));
  PAGEMILL_RETURN_IF_ERROR(CheckPositive("max_model_len", limits.max_model_len));
  PAGEMILL_RETURN_IF_ERROR(CheckPositive("vocab_size", limits.vocab_size));
  if (!limits.kv_groups.empty()) {
    PAGEMILL_RETURN_IF_ERROR(CheckPositive("num_blocks", limits.num_blocks));
  }
  PAGEMILL_RETURN_IF_ERROR(CheckPositive("block_size", limits.block_size));
  for (const step::KvGroupOptions& group : limits.kv_groups)
    PAGEMILL_RETURN_IF_ERROR(CheckGroup(group));
  return OkStatus();
}

// The limits with what this kind of runner, its executor and its encoders add to them.
engine::RunnerLimits Completed(engine::RunnerLimits limits, const program::Executor& executor,
                               const MediaEmbeddings* media) {
  limits.request_functions = true;
  limits.placeholders = executor.max_steps_in_flight() > 1 && !executor.pipelined();
  limits.pipeline_stages = executor.pipelined() ? executor.max_steps_in_flight() : 1;
  if (media != nullptr) {
    limits.media_formats = media->formats();
    limits.chunked_media_input = !media->options().item_ends;
  }
  return limits;
}

// True if some request of the plan was in an earlier step.
bool HasRequestThatGoesOn(const step::StepPlan& plan) {
  return std::any_of(plan.scheduled.begin(), plan.scheduled.end(),
                     [](const step::ScheduledRequest& entry) { return entry.start == nullptr; });
}

// True if the entry runs a token that was not known when it was planned.
bool IsAhead(const step::ScheduledRequest& entry) {
  return !entry.token_ids.empty() && entry.token_ids.back() == step::kPlaceholderTokenId;
}

}  // namespace

StatusOr<std::unique_ptr<ModelRunner>> ModelRunner::Create(program::Executor* executor,
                                                           device::ThreadPool* pool,
                                                           const engine::RunnerLimits& limits,
                                                           ModelRunnerParts parts) {
  PAGEMILL_RETURN_IF_ERROR(CheckLimits(limits));
  if ((parts.media != nullptr) != (limits.max_encoder_tokens > 0)) {
    return InvalidArgument("max_encoder_tokens is " + std::to_string(limits.max_encoder_tokens) +
                           (parts.media == nullptr ? " without an encoder" : " with an encoder"));
  }
  if ((parts.adapters != nullptr) != (limits.max_adapters > 0)) {
    return InvalidArgument("max_adapters is " + std::to_string(limits.max_adapters) +
                           (parts.adapters == nullptr ? " without adapters" : " with adapters"));
  }
  return std::unique_ptr<ModelRunner>(new ModelRunner(executor, pool, limits, std::move(parts)));
}

ModelRunner::ModelRunner(program::Executor* executor, device::ThreadPool* pool,
                         const engine::RunnerLimits& limits, ModelRunnerParts parts)
    : Runner(Completed(limits, *executor, parts.media.get()), parts.pages, parts.control),
      executor_(executor),
      proposer_(std::move(parts.proposer)),
      draft_model_(std::move(parts.draft_model)),
      media_(std::move(parts.media)),
      adapters_(std::move(parts.adapters)),
      batch_(Runner::limits(),
             draft_model_ == nullptr ? limits.kv_groups.size() : draft_model_->first_kv_group()),
      sampler_({.max_num_seqs = limits.max_num_seqs,
                .vocab_size = limits.vocab_size,
                .capabilities = device::DetectCapabilities(),
                .watermark = parts.watermark},
               pool),
      masks_({.max_num_seqs = limits.max_num_seqs,
              .vocab_size = limits.vocab_size,
              .max_forced_tokens = limits.max_forced_tokens}),
      clock_(parts.clock == nullptr ? &machine_clock_ : parts.clock),
      slots_(static_cast<size_t>(limits.max_num_seqs)) {
  sampling::DraftProposer* drafts = draft_model_.get();
  if (drafts == nullptr) drafts = proposer_.get();
  if (drafts == nullptr || limits.max_draft_tokens == 0) return;
  speculation_.emplace(drafts, clock_,
                       SpeculationOptions{.max_num_seqs = limits.max_num_seqs,
                                          .max_draft_tokens = limits.max_draft_tokens},
                       draft_model_.get());
}

Status ModelRunner::Execute(const step::StepPlan& plan) {
  if (executed_) return FailedPrecondition("the step before is not sampled");
  FinishForNextStep();
  draws_.clear();
  adjustments_.Clear();
  masks_wait_ = false;
  StepTimes times;
  stopwatch_.Begin(HasRequestThatGoesOn(plan), &times);
  const int64_t begun_ns = speculation_ ? clock_->NowNanos() : 0;
  PAGEMILL_RETURN_IF_ERROR(batch_.CheckSlots(plan));
  ApplyToSlots(plan);  // first, so that no request stays in them if the step fails
  if (adapters_ != nullptr) adapters_->Apply(plan);
  const step::StepPlan& exact = max_drafts() > 0 ? Resolve(plan) : plan;
  PAGEMILL_RETURN_IF_ERROR(batch_.Apply(exact));
  PAGEMILL_RETURN_IF_ERROR(CheckDrafts(exact));
  PAGEMILL_RETURN_IF_ERROR(FillPlaceholders());
  if (draft_model_ != nullptr && !plan.empty()) PAGEMILL_RETURN_IF_ERROR(MakeDrafts(exact));
  if (media_ != nullptr) {
    PAGEMILL_RETURN_IF_ERROR(media_->Apply(exact, batch_, adapters_.get()));
    if (draft_model_ != nullptr) {
      PAGEMILL_RETURN_IF_ERROR(
          draft_model_->KeepMedia(exact, media_->media_rows(), media_->embeddings()));
    }
  }
  StepInFlight& step = steps_.Add();
  step.times = times;
  step.begun_ns = begun_ns;
  if (draft_model_ != nullptr) step.draft_seconds = draft_model_->last_seconds();
  AddEntries(plan, exact, &step);
  const Status status = plan.empty() ? OkStatus() : Enqueue(exact, &step);
  if (!status.ok()) {
    steps_.PopNewest();
    return status;
  }
  executed_ = true;
  return OkStatus();
}

void ModelRunner::AddEntries(const step::StepPlan& plan, const step::StepPlan& exact,
                             StepInFlight* step) const {
  step->step_id = plan.step_id;
  for (size_t i = 0; i < exact.scheduled.size(); ++i) {
    const step::ScheduledRequest& entry = exact.scheduled[i];
    const Slot& slot = slots_[entry.index.value()];
    const size_t computed = static_cast<size_t>(entry.num_computed_tokens) + entry.token_ids.size();
    StepEntry& added = step->entries.emplace_back(MakeStepEntry(entry));
    added.holder = slot.holder;
    added.pools =
        slot.pooling &&
        (limits().token_rows || computed >= batch_.request(entry.index)->prompt_token_ids.size());
    added.forced = slot.forced;
    added.routed_experts = slot.routed_experts;
    added.num_missing_drafts = plan.scheduled[i].num_tokens() - entry.num_tokens();
  }
}

// The plan as it is run. Entries that were planned behind drafts begin where those that were
// accepted end, and get the drafts that were proposed since. The steps that verify drafts are
// finished; those that follow give one token each, which may be in flight.
const step::StepPlan& ModelRunner::Resolve(const step::StepPlan& plan) {
  const auto is_exact = [&](const step::ScheduledRequest& entry) {
    const Slot& slot = slots_[entry.index.value()];
    if (!IsAhead(entry) || slot.step == 0) return true;
    return entry.draft_token_ids.empty() && entry.num_computed_tokens == slot.num_tokens - 1;
  };
  if (std::all_of(plan.scheduled.begin(), plan.scheduled.end(), is_exact)) return plan;
  exact_ = plan;
  for (step::ScheduledRequest& entry : exact_.scheduled) {
    const Slot& slot = slots_[entry.index.value()];
    if (is_exact(entry)) continue;
    entry.num_computed_tokens = slot.num_tokens - 1;
    std::vector<int32_t>& drafts = entry.draft_token_ids;
    while (!drafts.empty() && slot.token_id < 0) FinishOldest();  // which proposes
    drafts.resize(std::min(drafts.size(), slot.drafts.size()));
    std::copy_n(slot.drafts.begin(), drafts.size(), drafts.begin());
    if (slot.token_id >= 0) entry.token_ids.back() = slot.token_id;
  }
  return exact_;
}

// Replaces each by its token if that is known, else by the row of the previous step that gives it.
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

Status ModelRunner::CheckDrafts(const step::StepPlan& plan) const {
  const auto most = static_cast<size_t>(max_drafts());
  for (const step::ScheduledRequest& entry : plan.scheduled) {
    if (entry.draft_token_ids.size() <= most) continue;
    return Internal("step plan, slot " + std::to_string(entry.index.value()) + ": it has " +
                    std::to_string(entry.draft_token_ids.size()) + " drafts, more than " +
                    std::to_string(most));
  }
  return OkStatus();
}

Status ModelRunner::MakeDrafts(const step::StepPlan& plan) {
  PAGEMILL_RETURN_IF_ERROR(draft_model_->Draft(plan));
  for (size_t i = 0; i < plan.scheduled.size(); ++i) {
    batch_.SetDrafts(i, draft_model_->token_ids(i));
  }
  return OkStatus();
}

int32_t ModelRunner::max_drafts() const {
  return std::max(limits().max_draft_tokens, limits().max_forced_tokens);
}

bool ModelRunner::VerifiesDrafts(const StepInFlight& step) const {
  return max_drafts() > 0 &&
         std::any_of(step.entries.begin(), step.entries.end(),
                     [](const StepEntry& entry) { return entry.num_drafts > 0; });
}

Status ModelRunner::Enqueue(const step::StepPlan& plan, StepInFlight* step) {
  stopwatch_.Lap(&StepTimes::batch_s, &step->times);
  ops::StepBatch batch = batch_.view();
  if (media_ != nullptr) media_->AddTo(&batch);
  if (adapters_ != nullptr) adapters_->AddTo(plan, &batch);
  const Finder finder = FinderOf(plan);
  if (finder != Finder::kHost) batch.argmax_columns = limits().vocab_size;
  if (finder == Finder::kDraw) MakeDraws(plan, step);
  const bool has_masks = AddMasks(plan);
  step->needs_host =
      executor_->pipelined() ? has_masks : finder == Finder::kHost || VerifiesDrafts(*step);
  masks_wait_ = has_masks && MatchersWait();
  if (!masks_wait_) masks_.Fill();
  const Status status = executor_->Enqueue(batch);
  stopwatch_.Lap(&StepTimes::model_s, &step->times);
  if (!status.ok()) {
    masks_.Wait();
    return status;
  }
  step->enqueued = true;
  step->kind = program::KindOf(batch);
  step->number = ++num_started_;
  ++num_enqueued_;
  batch_.TakeRows(&step->rows);
  NoteSamples(*step);
  return OkStatus();
}

void ModelRunner::NoteSamples(const StepInFlight& step) {
  for (size_t i = 0; i < step.rows.size(); ++i) {
    const BatchRow& row = step.rows[i];
    if (row.prompt_token_id >= 0) continue;
    Slot& slot = slots_[step.entries[static_cast<size_t>(row.entry)].index.value()];
    // Behind drafts, the row of the token depends on how many are accepted.
    const bool first = slot.step != step.number;
    slot.row = first ? static_cast<int32_t>(i) : kNoRow;
    slot.num_tokens += first;
    slot.step = step.number;
    slot.token_id = kInFlight;
  }
}

Status ModelRunner::Sample() {
  if (!executed_) return FailedPrecondition("no step was executed that is not sampled");
  if (masks_wait_) {
    while (steps_.size() > 1) FinishOldest();
    masks_.Fill();
  }
  masks_.Wait();
  if (!draws_.empty()) SampleOnExecutor(&steps_.newest());
  executed_ = false;
  return OkStatus();
}

StatusOr<step::StepResult> ModelRunner::Collect() {
  if (finished_.empty()) {
    const size_t num_not_sampled = executed_ ? 1 : 0;
    if (steps_.size() == num_not_sampled) {
      return FailedPrecondition("no step was sampled that is not collected");
    }
    FinishOldest();
  }
  StatusOr<step::StepResult> result = std::move(finished_.front());
  finished_.pop_front();
  return result;
}

void ModelRunner::ApplyToSlots(const step::StepPlan& plan) {
  for (step::RequestIndex index : plan.released) {
    slots_[index.value()] = {};
    sampler_.Release(index);
    masks_.Release(index);
    if (speculation_) speculation_->Release(index);
  }
  for (const step::ScheduledRequest& entry : plan.scheduled) {
    if (entry.start == nullptr) continue;
    slots_[entry.index.value()] = {
        .holder = ++num_holders_,
        .num_tokens = static_cast<int32_t>(entry.start->prompt_token_ids.size() +
                                           entry.resumed_output_token_ids.size()),
        .pooling = entry.start->pooling.has_value(),
        .routed_experts = entry.start->return_routed_experts,
        .greedy = entry.start->sampling.greedy()};
    if (entry.start->pooling) continue;
    masks_.Start(entry.index, *entry.start, entry.resumed_output_token_ids);
    sampler_.Start(entry.index, entry.start, entry.resumed_output_token_ids,
                   masks_.Holds(entry.index));
    if (speculation_) {
      speculation_->Start(entry.index, *entry.start, entry.resumed_output_token_ids);
    }
  }
}

bool ModelRunner::AddMasks(const step::StepPlan& plan) {
  masks_.BeginStep();
  bool any = false;
  for (size_t i = 0; i < plan.scheduled.size(); ++i) {
    const step::ScheduledRequest& entry = plan.scheduled[i];
    if (!entry.sample || !masks_.Holds(entry.index)) continue;
    masks_.AddRows(entry.index, batch_.drafts(i, entry.draft_token_ids.size()));
    any = true;
  }
  return any;
}

bool ModelRunner::MatchersWait() const {
  for (size_t i = 0; i + 1 < steps_.size(); ++i) {
    for (const StepEntry& entry : steps_[i].entries) {
      if (Holds(entry) && masks_.Holds(entry.index)) return true;
    }
  }
  return false;
}

ModelRunner::Finder ModelRunner::FinderOf(const step::ScheduledRequest& entry,
                                          const BatchRow& row) const {
  if (row.prompt_token_id >= 0) {
    const step::SamplingParams& params = batch_.request(entry.index)->sampling;
    const bool suffices = sampling::ScoresSuffice(params, /*of_prompt=*/true);
    return executor_->samples() && suffices ? Finder::kDraw : Finder::kHost;
  }
  const bool greedy = slots_[entry.index.value()].greedy;
  const bool needs_token = sampler_.NeedsOnlyToken(entry.index);
  if (greedy && needs_token && !masks_.Holds(entry.index)) return Finder::kLargest;
  if (!executor_->samples()) return Finder::kHost;
  if (!needs_token && !sampler_.NeedsOnlyAdjustedToken(entry.index)) return Finder::kHost;
  // Drawn drafts are verified with their distribution, which the host has.
  const bool drawn = row.draft_token_id >= 0 && draft_model_ != nullptr && !greedy;
  return drawn ? Finder::kHost : Finder::kDraw;
}

ModelRunner::Finder ModelRunner::FinderOf(const step::StepPlan& plan) const {
  const auto entry_of = [&](const BatchRow& row) -> const step::ScheduledRequest& {
    return plan.scheduled[static_cast<size_t>(row.entry)];
  };
  Finder finder = Finder::kLargest;
  for (const BatchRow& row : batch_.rows()) {
    finder = std::max(finder, FinderOf(entry_of(row), row));
    if (finder == Finder::kHost) return finder;
  }
  // An executor scores so many rows that it changes: only drafts may make more of them.
  const auto most = static_cast<size_t>(limits().max_num_seqs);
  if (batch_.rows().size() <= most) return finder;
  const auto is_changed_and_scored = [&](const BatchRow& row) {
    const step::RequestIndex index = entry_of(row).index;
    return row.prompt_token_id < 0 &&
           batch_.request(index)->sampling.logprobs != step::SamplingParams::kNoLogprobs &&
           (masks_.Holds(index) || sampler_.ChangesLogits(index));
  };
  const auto copies = std::ranges::count_if(batch_.rows(), is_changed_and_scored);
  return static_cast<size_t>(copies) <= most ? finder : Finder::kHost;
}

void ModelRunner::MakeDraws(const step::StepPlan& plan, StepInFlight* step) {
  const ops::StepArrays& batch = batch_.view();
  for (size_t i = 0; i < batch_.rows().size(); ++i) {
    const int32_t entry = batch_.rows()[i].entry;
    const int32_t prompt_token_id = batch_.rows()[i].prompt_token_id;
    const step::RequestIndex index = plan.scheduled[static_cast<size_t>(entry)].index;
    const step::Request& request = *batch_.request(index);
    const auto row = static_cast<int32_t>(i);
    const bool of_prompt = prompt_token_id >= 0;
    const int32_t wanted = of_prompt ? request.sampling.prompt_logprobs : request.sampling.logprobs;
    if (wanted != step::SamplingParams::kNoLogprobs) {
      step->scored.push_back({.row = row, .token_id = prompt_token_id, .num_top = wanted});
    }
    if (of_prompt) {
      draws_.emplace_back();
      continue;
    }
    const int32_t input = batch.logits_rows[i];
    // The request's inputs that have rows, one or, with drafts, some: they are behind the first.
    const int32_t last = batch.query_start[entry + 1] - 1;
    const int32_t first = last - step->entries[static_cast<size_t>(entry)].num_drafts;
    // Tokens of the request, up to and including the row's.
    const int32_t num_tokens = batch.seq_lens[entry] - (last - input);
    const int32_t num_outputs = num_tokens - static_cast<int32_t>(request.prompt_token_ids.size());
    draws_.push_back(sampling::RowDrawOf(request.sampling, num_outputs));
    if (sampler_.NeedsOnlyToken(index)) continue;
    sampler_.Adjust(
        index,
        {.row = row, .num_outputs = num_outputs, .input = input, .num_drafts = input - first},
        &adjustments_);
  }
}

void ModelRunner::SampleOnExecutor(StepInFlight* step) {
  int32_t num_masks = 0;
  for (size_t i = 0; i < draws_.size(); ++i) {
    const size_t entry = static_cast<size_t>(step->rows[i].entry);
    const step::RequestIndex index = step->entries[entry].index;
    if (step->rows[i].prompt_token_id >= 0 || !masks_.Holds(index)) continue;
    if (masks_.status(index).ok()) draws_[i].mask = num_masks;
    ++num_masks;
  }
  step->sampled = executor_->Sample({.rows = draws_,
                                     .masks = masks_.rows(),
                                     .cleared_slots = adjustments_.cleared_slots,
                                     .counts = adjustments_.counts,
                                     .biases = adjustments_.biases,
                                     .penalties = adjustments_.penalties,
                                     .scored = step->scored});
}

void ModelRunner::CheckIntegrity() const {
  batch_.CheckIntegrity();
  if (adapters_ != nullptr) adapters_->CheckIntegrity();
  if (draft_model_ != nullptr) draft_model_->CheckIntegrity();
  sampler_.CheckIntegrity();
}

}  // namespace pagemill::runner
