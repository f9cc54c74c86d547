#include "cc/runner/batch_state.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <string>

#include "cc/runner/grid_positions.h"

namespace pagemill::runner {
namespace {

Status BadPlan(const step::ScheduledRequest& entry, const std::string& what) {
  return Internal("step plan, slot " + std::to_string(entry.index.value()) + ": " + what);
}

int32_t NumCommonBlocks(const step::StepPlan& plan, size_t group) {
  const std::vector<int32_t>& counts = plan.num_common_prefix_blocks;
  return group < counts.size() ? counts[group] : 0;
}

}  // namespace

BatchState::BatchState(const engine::RunnerLimits& limits, size_t num_groups)
    : limits_(limits),
      has_grid_(step::HasGrid(limits.media_formats)),
      slots_(static_cast<size_t>(limits.max_num_seqs)) {
  for (size_t g = 0; g < num_groups; ++g) groups_.emplace_back(limits.kv_groups[g], limits);
  const size_t tokens = static_cast<size_t>(limits.max_num_tokens);
  token_ids_.resize(tokens);
  positions_.resize(tokens);
  query_start_.resize(slots_.size() + 1);
  seq_lens_.resize(slots_.size());
  if (has_grid_) grid_positions_.reserve(tokens * ops::kGridDims);
  if (limits.pooling) token_types_.reserve(tokens);
  if (!limits.chunked_prefill) item_ends_.reserve(tokens);
  logits_rows_.reserve(static_cast<size_t>(limits.max_num_logits_rows));
  rows_.reserve(static_cast<size_t>(limits.max_num_logits_rows));
}

const step::Request* BatchState::request(step::RequestIndex index) const {
  return slots_[static_cast<size_t>(index.value())].request.get();
}

Status BatchState::CheckSlots(const step::StepPlan& plan) const {
  const auto valid = [&](step::RequestIndex index) {
    return index.value() >= 0 && index.value() < limits_.max_num_seqs;
  };
  for (step::RequestIndex index : plan.released) {
    if (!valid(index)) {
      return Internal("step plan releases slot " + std::to_string(index.value()) +
                      ", which does not exist");
    }
  }
  if (plan.scheduled.size() > slots_.size()) {
    return Internal("step plan schedules more requests than there are slots");
  }
  for (const step::ScheduledRequest& entry : plan.scheduled) {
    if (!valid(entry.index)) return BadPlan(entry, "the slot does not exist");
  }
  return OkStatus();
}

Status BatchState::Apply(const step::StepPlan& plan) {
  PAGEMILL_RETURN_IF_ERROR(CheckSlots(plan));
  for (step::RequestIndex index : plan.released) {
    slots_[static_cast<size_t>(index.value())] = {};
  }
  num_tokens_ = num_requests_ = 0;
  for (std::vector<int32_t>* array :
       {&logits_rows_, &grid_positions_, &token_types_, &item_ends_}) {
    array->clear();
  }
  rows_.clear();
  placeholders_.clear();
  kv_.clear();
  for (BlockTables& group : groups_) group.BeginStep();
  // The blocks of every entry are applied, even if those of another one are wrong.
  Status failure;
  for (size_t i = 0; i < plan.scheduled.size(); ++i) {
    Status status = ApplyEntry(plan.scheduled[i], static_cast<int32_t>(i));
    if (!status.ok() && failure.ok()) failure = std::move(status);
  }
  PAGEMILL_RETURN_IF_ERROR(std::move(failure));
  PAGEMILL_RETURN_IF_ERROR(CheckCommonBlocks(plan));
  for (size_t g = 0; g < groups_.size(); ++g) {
    kv_.push_back(groups_[g].View(NumCommonBlocks(plan, g)));
  }
  view_ = {{.num_tokens = static_cast<int32_t>(num_tokens_),
            .num_requests = static_cast<int32_t>(num_requests_),
            .num_logits_rows = static_cast<int32_t>(logits_rows_.size()),
            .token_ids = token_ids_.data(),
            .positions = positions_.data(),
            .query_start = query_start_.data(),
            .seq_lens = seq_lens_.data(),
            .logits_rows = logits_rows_.data(),
            .grid_positions = has_grid_ ? grid_positions_.data() : nullptr,
            .token_types = limits_.pooling ? token_types_.data() : nullptr,
            .item_ends = limits_.chunked_prefill ? nullptr : item_ends_.data()},
           kv_,
           /*inputs=*/{}};
  return OkStatus();
}

void BatchState::SetDrafts(size_t entry, std::span<const int32_t> token_ids) {
  const auto first = query_start_[entry + 1] - static_cast<int32_t>(token_ids.size());
  std::copy(token_ids.begin(), token_ids.end(), token_ids_.begin() + first);
  // The rows of logits are in the order of their tokens: the first is that of the token before.
  auto row = std::lower_bound(logits_rows_.begin(), logits_rows_.end(), first - 1);
  for (int32_t id : token_ids) {
    rows_[static_cast<size_t>(row++ - logits_rows_.begin())].draft_token_id = id;
  }
}

Status BatchState::CheckCommonBlocks(const step::StepPlan& plan) const {
  for (size_t g = 0; g < groups_.size(); ++g) {
    const int32_t count = NumCommonBlocks(plan, g);
    for (size_t i = 0; count > 0 && i < plan.scheduled.size(); ++i) {
      const int64_t common_tokens = int64_t{count} * groups_[g].block_size();
      if (plan.scheduled[i].num_computed_tokens < common_tokens ||
          !groups_[g].SharesFirst(i, count)) {
        return BadPlan(plan.scheduled[i], "it does not have the " + std::to_string(count) +
                                              " blocks that all are said to have in common");
      }
    }
  }
  return OkStatus();
}

Status BatchState::ApplyEntry(const step::ScheduledRequest& entry, int32_t entry_index) {
  if (entry.start != nullptr) PAGEMILL_RETURN_IF_ERROR(ApplyStart(entry));
  if (request(entry.index) == nullptr) return BadPlan(entry, "it runs but holds no request");
  if (entry.has_new_blocks()) PAGEMILL_RETURN_IF_ERROR(ApplyBlocks(entry));
  PAGEMILL_RETURN_IF_ERROR(AppendTokens(entry));
  return AppendRows(entry, entry_index);
}

Status BatchState::ApplyStart(const step::ScheduledRequest& entry) {
  const int32_t slot = entry.index.value();
  slots_[static_cast<size_t>(slot)] = {};
  for (BlockTables& group : groups_) group.Reset(slot);
  for (const step::MediaItem& item : entry.start->media) {  // admission has checked them
    const Status fits = step::CheckFeatures(item, limits_.media_formats);
    if (!fits.ok()) return BadPlan(entry, "its media item " + fits.message());
  }
  slots_[static_cast<size_t>(slot)] = {entry.start, entry.start->pooling.has_value()};
  return OkStatus();
}

Status BatchState::ApplyBlocks(const step::ScheduledRequest& entry) {
  const int32_t slot = entry.index.value();
  if (entry.new_block_ids.size() > limits_.kv_groups.size()) {
    return BadPlan(entry, "it has blocks of more than " + std::to_string(limits_.kv_groups.size()) +
                              " KV groups");
  }
  Status failure;
  for (size_t g = 0; g < std::min(groups_.size(), entry.new_block_ids.size()); ++g) {
    if (entry.new_block_ids[g].empty()) continue;
    const Status status = groups_[g].Append(slot, entry.new_block_ids[g]);
    if (!status.ok() && failure.ok()) failure = BadPlan(entry, status.message());
  }
  return failure;
}

Status BatchState::AppendTokens(const step::ScheduledRequest& entry) {
  const int32_t slot = entry.index.value();
  const int64_t count = entry.num_tokens();
  const int64_t seq_len = entry.num_computed_tokens + count;
  if (count < 1 || entry.num_computed_tokens < 0) return BadPlan(entry, "it runs no token");
  for (const BlockTables& group : groups_) {
    if (seq_len <= group.NumTokens(slot)) continue;
    return BadPlan(entry, std::to_string(seq_len) + " tokens do not fit in its blocks of " +
                              std::to_string(group.NumTokens(slot)));
  }
  if (static_cast<int64_t>(num_tokens_) + count > limits_.max_num_tokens) {
    return BadPlan(entry, "the step has more than max_num_tokens tokens");
  }
  int32_t* ids = &token_ids_[num_tokens_];
  ids = std::copy(entry.token_ids.begin(), entry.token_ids.end(), ids);
  std::copy(entry.draft_token_ids.begin(), entry.draft_token_ids.end(), ids);
  // The newest token is the only one that may not be known.
  if (!entry.token_ids.empty() && entry.token_ids.back() == step::kPlaceholderTokenId) {
    placeholders_.push_back({static_cast<int32_t>(ids - token_ids_.data()) - 1, entry.index});
  }
  int32_t* positions = &positions_[num_tokens_];
  std::iota(positions, positions + count, entry.num_computed_tokens);
  num_tokens_ += static_cast<size_t>(count);
  const auto end = static_cast<int32_t>(seq_len);
  if (limits_.pooling) AppendTokenTypes(*request(entry.index), entry.num_computed_tokens, end);
  if (!limits_.chunked_prefill) PAGEMILL_RETURN_IF_ERROR(AppendPromptEnds(entry));
  if (has_grid_) {
    AppendGridPositions(*request(entry.index), entry.num_computed_tokens, end, &grid_positions_);
  }
  for (BlockTables& group : groups_) {
    group.AddRequest(slot, entry.num_computed_tokens, static_cast<int32_t>(count));
  }
  seq_lens_[num_requests_++] = end;
  query_start_[num_requests_] = static_cast<int32_t>(num_tokens_);
  return OkStatus();
}

// Of tokens [begin, end).
void BatchState::AppendTokenTypes(const step::Request& request, int32_t begin, int32_t end) {
  const int32_t second = request.second_text_start == 0 ? end : request.second_text_start;
  const int32_t border = std::clamp(second, begin, end);
  token_types_.insert(token_types_.end(), static_cast<size_t>(border - begin), 0);
  token_types_.insert(token_types_.end(), static_cast<size_t>(end - border), 1);
}

// Of tokens of a prompt that runs in one step, so that they may see each other.
Status BatchState::AppendPromptEnds(const step::ScheduledRequest& entry) {
  const int32_t begin = entry.num_computed_tokens, end = begin + entry.num_tokens();
  const auto prompt = static_cast<int32_t>(request(entry.index)->prompt_token_ids.size());
  if (end < prompt) {
    return BadPlan(entry, "its prompt is divided at token " + std::to_string(end) +
                              ", but runs in one step");
  }
  const int32_t border = std::clamp(prompt, begin, end);
  item_ends_.insert(item_ends_.end(), static_cast<size_t>(border - begin), prompt);
  item_ends_.insert(item_ends_.end(), static_cast<size_t>(end - border), 0);
  return OkStatus();
}

Status BatchState::AppendRows(const step::ScheduledRequest& entry, int32_t entry_index) {
  if (slots_[static_cast<size_t>(entry.index.value())].pooling) return OkStatus();
  const int32_t first_token = query_start_[num_requests_ - 1];
  const int32_t count = static_cast<int32_t>(entry.token_ids.size());
  if (entry.prompt_logprobs) {
    const std::span<const int32_t> prompt = request(entry.index)->prompt_token_ids;
    for (int32_t i = 0; i < count; ++i) {
      const size_t next = static_cast<size_t>(entry.num_computed_tokens) + 1 + i;
      if (next >= prompt.size()) break;
      logits_rows_.push_back(first_token + i);
      rows_.push_back({.entry = entry_index, .prompt_token_id = prompt[next]});
    }
  }
  // The token before the first draft, then every draft.
  if (entry.sample) {
    for (int32_t i = std::max(count - 1, 0); i < entry.num_tokens(); ++i) {
      logits_rows_.push_back(first_token + i);
      BatchRow& row = rows_.emplace_back(BatchRow{.entry = entry_index});
      if (i + 1 < entry.num_tokens()) {
        row.draft_token_id = entry.draft_token_ids[static_cast<size_t>(i + 1 - count)];
      }
    }
  }
  if (static_cast<int64_t>(rows_.size()) <= limits_.max_num_logits_rows) return OkStatus();
  return BadPlan(entry, "the step has more than max_num_logits_rows = " +
                            std::to_string(limits_.max_num_logits_rows) + " rows of logits");
}

void BatchState::CheckIntegrity() const {
  for (const BlockTables& group : groups_) group.CheckIntegrity();
}

}  // namespace pagemill::runner
