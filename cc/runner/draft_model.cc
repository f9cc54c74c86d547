#include "cc/runner/draft_model.h"

#include <algorithm>
#include <string>
#include <utility>

#include "cc/device/capabilities.h"
#include "cc/ops/batch_view.h"
#include "cc/runner/grid_positions.h"

namespace pagemill::runner {
namespace {

Status CheckTokenIds(const DraftModelOptions& options, int32_t vocab_size) {
  if (options.token_ids.empty()) return OkStatus();
  if (options.token_ids.size() != static_cast<size_t>(options.num_tokens)) {
    return InvalidArgument("token_ids has " + std::to_string(options.token_ids.size()) +
                           " ids for " + std::to_string(options.num_tokens) + " columns");
  }
  std::vector<char> seen(static_cast<size_t>(vocab_size));
  for (const int32_t id : options.token_ids) {
    if (id < 0 || id >= vocab_size) {
      return InvalidArgument("token_ids has " + std::to_string(id) + ", which is not one of " +
                             std::to_string(vocab_size) + " tokens");
    }
    if (seen[static_cast<size_t>(id)]++ == 0) continue;
    return InvalidArgument("token_ids has " + std::to_string(id) + " twice");
  }
  return OkStatus();
}

Status CheckHeads(const DraftModelOptions& options, const engine::RunnerLimits& limits,
                  bool has_groups) {
  const std::string stated = "num_heads is " + std::to_string(options.num_heads);
  if (options.num_heads < limits.max_draft_tokens) {
    return InvalidArgument(stated + ", it must be at least max_draft_tokens, which is " +
                           std::to_string(limits.max_draft_tokens));
  }
  if (options.states_width > 0 && options.media_width == 0 && !options.grid_positions &&
      !has_groups) {
    return OkStatus();
  }
  return InvalidArgument(stated + ": such a program reads states, no media, and has no KV groups");
}

Status CheckMasks(const DraftModelOptions& options, const engine::RunnerLimits& limits) {
  if (options.mask_token_id < 0) {
    return InvalidArgument("mask_token_id is " + std::to_string(options.mask_token_id) +
                           ", it must be at least 0");
  }
  if (limits.max_num_tokens <= limits.max_draft_tokens) {
    return InvalidArgument("max_num_tokens is " + std::to_string(limits.max_num_tokens) +
                           ", a pass with masks for " + std::to_string(limits.max_draft_tokens) +
                           " drafts needs more");
  }
  const bool block = options.queries == DraftQueries::kBlock;
  if (options.num_heads == 0 && options.media_width == 0 && (!block || options.states_width > 0)) {
    return OkStatus();
  }
  return InvalidArgument(
      "a block drafter reads masks in place of media and has no heads; one whose queries see each "
      "other reads states");
}

}  // namespace

StatusOr<std::unique_ptr<DraftModel>> DraftModel::Create(program::Executor* executor,
                                                         device::ThreadPool* pool,
                                                         const Clock* clock,
                                                         const engine::RunnerLimits& limits,
                                                         const DraftModelOptions& options) {
  const bool has_groups = options.first_kv_group < limits.kv_groups.size();
  if (!has_groups && options.num_heads == 0) {
    return InvalidArgument("the draft model has no KV groups");
  }
  if (options.num_heads != 0) PAGEMILL_RETURN_IF_ERROR(CheckHeads(options, limits, has_groups));
  for (size_t g = options.first_kv_group; g < limits.kv_groups.size(); ++g) {
    const std::string& kind = limits.kv_groups[g].kind;
    if (kind == "full" || kind == "mla") continue;
    return InvalidArgument("the draft model has \"" + kind +
                           "\" layers, which drop tokens before it may have read them: choose one "
                           "without");
  }
  if (options.num_tokens < 1 || options.num_tokens > limits.vocab_size) {
    return InvalidArgument("num_tokens is " + std::to_string(options.num_tokens) +
                           ", it must be from 1 to " + std::to_string(limits.vocab_size));
  }
  if (options.states_width < 0) {
    return InvalidArgument("states_width is " + std::to_string(options.states_width) +
                           ", it must be at least 0");
  }
  if (options.media_width < 0 || (options.media_width > 0 && options.states_width == 0)) {
    return InvalidArgument("media_width is " + std::to_string(options.media_width) +
                           ": it must be 0, or more with states_width above 0");
  }
  PAGEMILL_RETURN_IF_ERROR(CheckTokenIds(options, limits.vocab_size));
  if (options.queries != DraftQueries::kToken) {
    PAGEMILL_RETURN_IF_ERROR(CheckMasks(options, limits));
  }
  return std::unique_ptr<DraftModel>(new DraftModel(executor, pool, clock, limits, options));
}

DraftModel::DraftModel(program::Executor* executor, device::ThreadPool* pool, const Clock* clock,
                       const engine::RunnerLimits& limits, const DraftModelOptions& options)
    : executor_(executor),
      clock_(clock),
      limits_(limits),
      options_(options),
      num_readable_(options.token_ids.empty() ? options.num_tokens : limits.vocab_size),
      sampler_({.num_columns = options.num_tokens,
                .vocab_size = limits.vocab_size,
                .token_ids = options_.token_ids,
                .num_heads = std::max(1, options.num_heads),
                .capabilities = device::DetectCapabilities()},
               pool),
      slots_(static_cast<size_t>(limits.max_num_seqs)),
      complete_(static_cast<size_t>(limits.num_blocks)) {
  for (size_t g = options.first_kv_group; g < limits.kv_groups.size(); ++g) {
    tables_.emplace_back(limits.kv_groups[g], limits);
  }
  // Not null in passes without queries, either.
  query_rows_.reserve(static_cast<size_t>(limits.max_num_tokens));
  if (options.states_width == 0) return;
  states_.emplace(DraftStatesOptions{
      .width = options.states_width, .type = options.input_type, .num_slots = limits.max_num_seqs});
  if (options.media_width == 0) return;
  media_.emplace(DraftMediaOptions{
      .width = options.media_width, .type = options.input_type, .num_slots = limits.max_num_seqs});
}

void DraftModel::Start(step::RequestIndex index, std::span<const int32_t> tokens) {
  At(index) = {};
  At(index).text.assign(tokens.begin(), tokens.end());
  if (states_) states_->Start(index.value(), 0);
  if (media_) media_->Start(index.value());
}

void DraftModel::Observe(step::RequestIndex index, std::span<const int32_t> tokens) {
  Slot& slot = At(index);
  // What was computed behind the last known token are drafts, of which all but the last of `tokens`
  // were accepted; a head computed them with its own states.
  const size_t num_accepted = states_ ? 0 : tokens.size() - 1;
  const auto num_kept = static_cast<int32_t>(slot.text.size() + num_accepted);
  slot.num_computed = std::min(slot.num_computed, num_kept);
  slot.text.insert(slot.text.end(), tokens.begin(), tokens.end());
}

void DraftModel::Propose(step::RequestIndex, int32_t max_tokens, std::vector<int32_t>* drafts) {
  drafts->assign(static_cast<size_t>(std::max(0, max_tokens)), step::kPlaceholderTokenId);
}

Status DraftModel::Draft(const step::StepPlan& plan) {
  const int64_t begun_ns = clock_->NowNanos();
  last_seconds_ = 0.0;
  first_draft_.assign(1, 0);
  work_.clear();
  Status failure;
  for (const step::ScheduledRequest& entry : plan.scheduled) {
    const Status status = ApplyBlocks(entry);
    if (!status.ok() && failure.ok()) failure = status;
    AddWork(entry);
    first_draft_.push_back(first_draft_.back() + entry.draft_token_ids.size());
  }
  PAGEMILL_RETURN_IF_ERROR(std::move(failure));
  sampler_.Begin(first_draft_.back());
  if (states_) states_->BeginStep(first_draft_.back());
  if (work_.empty()) return OkStatus();
  Status status = RunPasses();
  while (!passes_.empty()) (void)CollectPass();  // of a step that fails
  last_seconds_ = SecondsBetween(begun_ns, clock_->NowNanos());
  return status;
}

Status DraftModel::KeepMedia(const step::StepPlan& plan, std::span<const int32_t> media_rows,
                             const TensorView& embeddings) {
  if (!media_ || media_rows.empty()) return OkStatus();
  if (!media_->Fits(embeddings, media_rows.size())) {
    return Internal("the embeddings of media are not those of the draft head");
  }
  int32_t first = 0;  // token of the step
  size_t row = 0;
  for (const step::ScheduledRequest& entry : plan.scheduled) {
    const int32_t end = first + static_cast<int32_t>(entry.num_tokens());
    for (; row < media_rows.size() && media_rows[row] < end; ++row) {
      media_->Append(entry.index.value(), entry.num_computed_tokens + media_rows[row] - first,
                     embeddings, static_cast<int64_t>(row));
    }
    first = end;
  }
  return OkStatus();
}

Status DraftModel::FollowTarget(std::span<const TargetTokens> tokens, const TensorView& states) {
  const int64_t begun_ns = clock_->NowNanos();
  last_seconds_ = 0.0;
  work_.clear();
  bool waits_too_long = false;
  for (const TargetTokens& of : tokens) {
    if (!states_->Fits(states, of.first_row + of.count)) {
      return Internal("the model gives no states for the draft head");
    }
    Slot& slot = At(of.index);
    const int32_t index = of.index.value();
    DropInputs(index, slot);
    states_->Append(index, states, of.first_row, of.count);
    if (HasHeads()) {
      states_->DropBefore(index, states_->num_tokens(index) - 1);
      continue;
    }
    const int32_t end =
        std::min(states_->num_tokens(index), static_cast<int32_t>(slot.text.size()));
    const int32_t waiting = end - slot.num_computed;
    waits_too_long = waits_too_long || waiting > kMaxWaiting;
    // Together, so that there are few passes.
    if (waiting > kMaxWaiting / 2) work_.push_back({.slot = &slot, .index = index, .end = end});
  }
  if (!waits_too_long) return OkStatus();
  PAGEMILL_RETURN_IF_ERROR(CatchUp());
  for (const Work& work : work_) DropInputs(work.index, *work.slot);
  last_seconds_ = SecondsBetween(begun_ns, clock_->NowNanos());
  return OkStatus();
}

Status DraftModel::RunPasses() {
  PAGEMILL_RETURN_IF_ERROR(CatchUp());
  if (!HasHeads() && !HasMasks()) PAGEMILL_RETURN_IF_ERROR(DraftFurther());
  return CollectPasses();
}

Status DraftModel::ApplyBlocks(const step::ScheduledRequest& entry) {
  Slot& slot = At(entry.index);
  const int32_t index = entry.index.value();
  if (entry.start != nullptr) {
    slot.request = entry.start;
    slot.pages.clear();
    for (BlockTables& table : tables_) table.Reset(index);
  }
  for (size_t t = 0; t < tables_.size(); ++t) {
    if (options_.first_kv_group + t >= entry.new_block_ids.size()) break;
    const std::vector<step::BlockId>& blocks = entry.new_block_ids[options_.first_kv_group + t];
    PAGEMILL_RETURN_IF_ERROR(tables_[t].Append(index, blocks));
    if (t > 0) continue;
    for (step::BlockId block : blocks) {
      const auto first = static_cast<int64_t>(slot.pages.size()) * tables_[0].block_size();
      if (first >= entry.num_computed_tokens) complete_[static_cast<size_t>(block.value())] = 0;
      slot.pages.push_back(block);
    }
  }
  if (entry.start == nullptr) return OkStatus();
  if (!HasHeads()) SkipCachedTokens(&slot, entry.num_computed_tokens);
  if (states_) states_->Start(index, entry.num_computed_tokens);
  if (media_) media_->Start(index);
  return OkStatus();
}

// Tokens of cached blocks are there, up to the first that is incomplete. A head leaves few tokens
// out, so many were loaded from elsewhere, with its KV, which it could not compute as well.
void DraftModel::SkipCachedTokens(Slot* slot, int32_t num_cached) {
  const int32_t block_size = tables_[0].block_size();
  slot->num_complete = 0;
  for (step::BlockId page : slot->pages) {
    if (slot->num_complete + block_size > num_cached) break;
    if (complete_[static_cast<size_t>(page.value())] == 0) break;
    slot->num_complete += block_size;
  }
  slot->num_computed = slot->num_complete;
  const int32_t most_left_out = kMaxWaiting + limits_.max_draft_tokens + block_size;
  if (!states_ || num_cached - slot->num_complete <= most_left_out) return;
  slot->num_computed = num_cached;
  MarkComplete(slot);
}

void DraftModel::AddWork(const step::ScheduledRequest& entry) {
  Slot& slot = At(entry.index);
  slot.num_caught_up = 0;
  const auto num_known = static_cast<int32_t>(entry.token_ids.size());
  const auto num_drafts = static_cast<int32_t>(entry.draft_token_ids.size());
  const int32_t end = entry.num_computed_tokens + num_known;
  // One that is not known yet comes with Observe().
  if (num_known > 0 && entry.token_ids.back() != step::kPlaceholderTokenId) {
    if (static_cast<int32_t>(slot.text.size()) < end) slot.text.resize(static_cast<size_t>(end));
    std::copy(entry.token_ids.begin(), entry.token_ids.end(),
              slot.text.begin() + entry.num_computed_tokens);
  }
  if (num_drafts == 0 && (states_ || num_known == 1 || !slot.follows)) return;
  if (HasHeads()) slot.num_computed = end - 1;
  slot.num_caught_up = std::max(0, end - slot.num_computed - 1);
  work_.push_back({.slot = &slot,
                   .index = entry.index.value(),
                   .end = end,
                   .num_drafts = num_drafts,
                   .first_draft = first_draft_.back()});
}

// Computes the tokens that wait, in as many passes as they need, and the first draft of each
// request.
Status DraftModel::CatchUp() {
  for (size_t w = 0; w < work_.size();) {
    BeginPass();
    int32_t room = limits_.max_num_tokens;
    for (; w < work_.size() && room > 0; ++w) {
      Work& work = work_[w];
      Slot& slot = *work.slot;
      // The last known token is computed in any case: the draft follows from it.
      if (work.num_drafts > 0) slot.num_computed = std::min(slot.num_computed, work.end - 1);
      const int32_t missing = work.end - slot.num_computed;
      const int32_t num_masks = NumMasks(work.num_drafts);
      int32_t count = std::min(room, missing);
      // Masks are in the pass of the last known token.
      if (missing + num_masks > room && num_masks > 0) count = std::min(room, missing - 1);
      if (count <= 0 && missing > 0) {
        if (!token_ids_.empty()) break;
        return Internal("the masks of " + std::to_string(work.num_drafts) +
                        " drafts do not fit in a pass");
      }
      if (count <= 0) continue;
      if (count == missing && num_masks > 0) {
        PAGEMILL_RETURN_IF_ERROR(AddBlock(&work, slot.num_computed));
        // The last known token of a block is a query; its state is not known yet.
        slot.num_computed = HasBlocks() ? work.end - 1 : work.end;
        room -= count + num_masks;
        continue;
      }
      ReadKnown(slot, slot.num_computed, count);
      PAGEMILL_RETURN_IF_ERROR(AddTokens(work, readable_, slot.num_computed));
      slot.num_computed += count;
      room -= count;
      if (slot.num_computed < work.end) break;
      if (work.num_drafts > 0) AddRow(&work, 0);
    }
    PAGEMILL_RETURN_IF_ERROR(EnqueuePass());
  }
  for (const Work& work : work_) MarkComplete(work.slot);
  return OkStatus();
}

Status DraftModel::DraftFurther() {
  for (int32_t draft = 1;; ++draft) {
    BeginPass();
    for (Work& work : work_) {
      if (draft >= work.num_drafts) continue;
      PAGEMILL_ASSIGN_OR_RETURN(const int32_t token, TokenBefore(work, draft));
      const size_t before = work.first_draft + static_cast<size_t>(draft) - 1;
      PAGEMILL_RETURN_IF_ERROR(AddTokens(work, std::span(&token, 1), work.end + draft - 1, before));
      work.slot->num_computed = work.end + draft;
      AddRow(&work, draft);
    }
    if (token_ids_.empty()) return OkStatus();
    PAGEMILL_RETURN_IF_ERROR(EnqueuePass());
  }
}

StatusOr<int32_t> DraftModel::TokenBefore(const Work& work, int32_t draft) {
  if (!passes_.empty() && work.pass == num_passes_) return program::TokenOfRow(work.row);
  PAGEMILL_RETURN_IF_ERROR(CollectPasses());
  return sampler_.token_ids()[work.first_draft + static_cast<size_t>(draft) - 1];
}

void DraftModel::MarkComplete(Slot* slot) {
  if (HasHeads()) return;
  const int32_t block_size = tables_[0].block_size();
  for (; slot->num_complete + block_size <= slot->num_computed; slot->num_complete += block_size) {
    const step::BlockId page = slot->pages[static_cast<size_t>(slot->num_complete / block_size)];
    complete_[static_cast<size_t>(page.value())] = 1;
  }
}

// What a head has read. The last computed token may be computed again, with the state before it.
void DraftModel::DropInputs(int32_t index, const Slot& slot) {
  states_->DropBefore(index, slot.num_computed - 2);
  if (media_) media_->DropBefore(index, slot.num_computed - 1);
}

void DraftModel::BeginPass() {
  for (std::vector<int32_t>* array :
       {&token_ids_, &positions_, &query_start_, &seq_lens_, &logits_rows_, &grid_positions_,
        &marked_rows_, &query_rows_, &item_ends_}) {
    array->clear();
  }
  query_start_.push_back(0);
  rows_.clear();
  if (states_) states_->BeginPass();
  if (media_) media_->BeginPass();
  for (BlockTables& table : tables_) table.BeginStep();
}

Status DraftModel::AddTokens(const Work& work, std::span<const int32_t> token_ids, int32_t position,
                             std::optional<size_t> own_state) {
  const auto count = static_cast<int32_t>(token_ids.size());
  for (BlockTables& table : tables_) {
    if (position + count > table.NumTokens(work.index)) {
      return Internal("step plan, slot " + std::to_string(work.index) + ": " +
                      std::to_string(position + count) +
                      " tokens do not fit in its blocks of the draft model");
    }
    table.AddRequest(work.index, position, count);
  }
  if (media_) {
    media_->AddToPass(work.index, position, count, static_cast<int32_t>(token_ids_.size()));
  }
  if (options_.grid_positions) {
    AppendGridPositions(*work.slot->request, position, position + count, &grid_positions_);
  }
  token_ids_.insert(token_ids_.end(), token_ids.begin(), token_ids.end());
  if (states_ && own_state) {
    states_->AddOwnToPass(*own_state);
  } else if (states_ && !HasBlocks()) {
    states_->AddToPass(work.index, position, count);
  } else if (states_) {
    // Each token's own.
    const int32_t num_states = std::clamp(work.end - position - (work.num_drafts > 0), 0, count);
    const int32_t first = static_cast<int32_t>(token_ids_.size()) - count;
    states_->AddToPass(work.index, position + 1, num_states);
    for (int32_t i = 0; i < count; ++i) {
      (i < num_states ? marked_rows_ : query_rows_).push_back(first + i);
      item_ends_.push_back(i < num_states ? 0 : position + count);
    }
  }
  for (int32_t i = 0; i < count; ++i) positions_.push_back(position + i);
  query_start_.push_back(static_cast<int32_t>(token_ids_.size()));
  seq_lens_.push_back(position + count);
  return OkStatus();
}

int32_t DraftModel::NumMasks(int32_t num_drafts) const {
  if (!HasMasks() || num_drafts == 0) return 0;
  return HasBlocks() ? num_drafts : num_drafts - 1;
}

// Tokens that only the target knows are read as token 0.
void DraftModel::ReadKnown(const Slot& slot, int32_t position, int32_t count) {
  const auto first = slot.text.begin() + position;
  readable_.assign(first, first + count);
  for (int32_t& id : readable_) id = id < num_readable_ ? id : 0;
}

Status DraftModel::AddBlock(Work* work, int32_t position) {
  const int32_t num_masks = NumMasks(work->num_drafts);
  ReadKnown(*work->slot, position, work->end - position);
  readable_.insert(readable_.end(), static_cast<size_t>(num_masks), options_.mask_token_id);
  PAGEMILL_RETURN_IF_ERROR(AddTokens(*work, readable_, position));
  const auto end = static_cast<int32_t>(token_ids_.size());
  if (states_ && !HasBlocks()) {
    for (int32_t mask = end - num_masks; mask < end; ++mask) marked_rows_.push_back(mask);
  }
  for (int32_t draft = 0; draft < work->num_drafts; ++draft) {
    AddDraftRow(*work, draft, static_cast<int32_t>(logits_rows_.size()), /*head=*/0);
    logits_rows_.push_back(end - work->num_drafts + draft);
  }
  return OkStatus();
}

void DraftModel::AddRow(Work* work, int32_t draft) {
  work->pass = num_passes_ + 1;
  work->row = static_cast<int32_t>(logits_rows_.size());
  logits_rows_.push_back(static_cast<int32_t>(token_ids_.size()) - 1);
  const int32_t end = HasHeads() ? work->num_drafts : draft + 1;
  for (int32_t d = draft; d < end; ++d) AddDraftRow(*work, d, work->row, d - draft);
}

void DraftModel::AddDraftRow(const Work& work, int32_t draft, int32_t row, int32_t head) {
  const step::Request& request = *work.slot->request;
  rows_.push_back(
      {.draft = work.first_draft + static_cast<size_t>(draft),
       .row = row,
       .head = head,
       .params = &request.sampling,
       .position = work.end + draft - static_cast<int32_t>(request.prompt_token_ids.size())});
}

// Collects it unless the next one may be enqueued before its tokens are known.
Status DraftModel::EnqueuePass() {
  if (token_ids_.empty()) return OkStatus();
  const auto most = static_cast<size_t>(executor_->max_steps_in_flight());
  if (passes_.size() == most) PAGEMILL_RETURN_IF_ERROR(CollectPass());
  kv_.clear();
  for (const BlockTables& table : tables_) kv_.push_back(table.View(/*num_common_blocks=*/0));
  const bool greedy = std::all_of(rows_.begin(), rows_.end(),
                                  [](const DraftRow& row) { return row.params->greedy(); });
  std::vector<TensorView> inputs;
  if (states_) inputs.push_back(states_->view());
  if (media_) inputs.push_back(media_->embeddings());
  const std::span<const int32_t> media_rows =
      media_ ? media_->rows() : std::span<const int32_t>(marked_rows_);
  const ops::StepBatch batch = {
      {.num_tokens = static_cast<int32_t>(token_ids_.size()),
       .num_requests = static_cast<int32_t>(seq_lens_.size()),
       .num_logits_rows = static_cast<int32_t>(logits_rows_.size()),
       .num_media_rows = static_cast<int32_t>(media_rows.size()),
       .num_text_rows = static_cast<int32_t>(query_rows_.size()),
       .argmax_columns = greedy && !HasHeads() ? options_.num_tokens : 0,
       .token_ids = token_ids_.data(),
       .positions = positions_.data(),
       .query_start = query_start_.data(),
       .seq_lens = seq_lens_.data(),
       .logits_rows = logits_rows_.data(),
       .media_rows = media_rows.data(),
       .text_rows = HasBlocks() ? query_rows_.data() : nullptr,
       .grid_positions = options_.grid_positions ? grid_positions_.data() : nullptr,
       .item_ends = HasBlocks() ? item_ends_.data() : nullptr},
      kv_,
      inputs};
  const int64_t begun_ns = clock_->NowNanos();
  PAGEMILL_RETURN_IF_ERROR(executor_->Enqueue(batch));
  ++num_passes_;
  passes_.push_back({.rows = rows_, .num_tokens = batch.num_tokens, .begun_ns = begun_ns});
  return greedy && Chains() ? OkStatus() : CollectPasses();
}

bool DraftModel::Chains() const {
  return executor_->max_steps_in_flight() > 1 && !states_ && options_.token_ids.empty();
}

Status DraftModel::CollectPass() {
  const Pass pass = std::move(passes_.front());
  passes_.pop_front();
  program::ExecutorOutput output;
  PAGEMILL_RETURN_IF_ERROR(executor_->Collect(&output));
  PAGEMILL_RETURN_IF_ERROR(sampler_.Run(output, pass.rows));
  PAGEMILL_RETURN_IF_ERROR(KeepStates(pass, output));
  // Passes run one after the other.
  const int64_t begun_ns = std::max(pass.begun_ns, last_collected_ns_);
  last_collected_ns_ = clock_->NowNanos();
  if (last_collected_ns_ > begun_ns) {
    costs_.Observe(pass.num_tokens, SecondsBetween(begun_ns, last_collected_ns_));
  }
  return OkStatus();
}

Status DraftModel::KeepStates(const Pass& pass, const program::ExecutorOutput& output) {
  if (!states_ || HasHeads() || HasMasks() || pass.rows.empty()) return OkStatus();
  const TensorView own = output.Find(kDraftStates);
  if (!states_->Fits(own, static_cast<int64_t>(pass.rows.size()))) {
    return Internal("the draft head gives no states");
  }
  for (const DraftRow& row : pass.rows) states_->Keep(row.draft, own, row.row);
  return OkStatus();
}

Status DraftModel::CollectPasses() {
  while (!passes_.empty()) PAGEMILL_RETURN_IF_ERROR(CollectPass());
  return OkStatus();
}

std::span<const int32_t> DraftModel::token_ids(size_t entry) const {
  return sampler_.token_ids().subspan(first_draft_[entry],
                                      first_draft_[entry + 1] - first_draft_[entry]);
}

double DraftModel::Seconds(int32_t num_requests, int32_t num_drafts, int32_t num_waiting) const {
  if (!costs_.measured() || num_drafts == 0) return 0.0;
  const int32_t num_further = HasHeads() || HasMasks() ? 0 : num_drafts - 1;  // passes
  const int32_t num_queries = num_requests * (1 + NumMasks(num_drafts));
  return costs_.Of(num_queries + num_waiting) + num_further * costs_.Of(num_requests);
}

int32_t DraftModel::num_waiting(step::RequestIndex index) const {
  if (HasHeads()) return 0;
  const Slot& slot = At(index);
  return std::max(0, static_cast<int32_t>(slot.text.size()) - slot.num_computed - 1);
}

void DraftModel::CheckIntegrity() const {
  for (const BlockTables& table : tables_) table.CheckIntegrity();
  for (const Slot& slot : slots_) {
    PAGEMILL_CHECK(slot.num_complete <= slot.num_computed);
    if (HasHeads()) continue;
    PAGEMILL_CHECK(slot.num_complete <=
                   static_cast<int64_t>(slot.pages.size()) * tables_[0].block_size());
  }
}

}  // namespace pagemill::runner
