#include "cc/runner/batch_state.h"

#include <algorithm>
#include <string>

namespace pagemill::runner {
namespace {

Status BadPlan(const step::ScheduledRequest& entry, const std::string& what) {
  return Internal("step plan, slot " + std::to_string(entry.index.value()) + ": " + what);
}

// There is one KV group.
int32_t NumCommonBlocks(const step::StepPlan& plan) {
  return plan.num_common_prefix_blocks.empty() ? 0 : plan.num_common_prefix_blocks[0];
}

}  // namespace

BatchState::BatchState(const engine::RunnerLimits& limits)
    : limits_(limits),
      stride_((limits.max_model_len + limits.block_size - 1) / limits.block_size),
      slots_(static_cast<size_t>(limits.max_num_seqs)),
      slot_tables_(slots_.size() * static_cast<size_t>(stride_)),
      mirrors_(slots_.size()),
      batch_tables_(slot_tables_.size()) {
  const size_t tokens = static_cast<size_t>(limits.max_num_tokens);
  for (std::vector<int32_t>* array : {&token_ids_, &positions_, &slot_mapping_}) {
    array->reserve(tokens);
  }
  query_start_.reserve(slots_.size() + 1);
  seq_lens_.reserve(slots_.size());
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
  PM_RETURN_IF_ERROR(CheckSlots(plan));
  for (step::RequestIndex index : plan.released) {
    slots_[static_cast<size_t>(index.value())].request = nullptr;
  }
  for (std::vector<int32_t>* array :
       {&token_ids_, &positions_, &slot_mapping_, &query_start_, &seq_lens_, &logits_rows_}) {
    array->clear();
  }
  rows_.clear();
  query_start_.push_back(0);
  // Every entry's blocks are applied, whatever is wrong with another's.
  Status failure;
  for (size_t i = 0; i < plan.scheduled.size(); ++i) {
    const step::ScheduledRequest& entry = plan.scheduled[i];
    Status status = ApplyBlocks(entry);
    if (status.ok()) MirrorTable(i, entry.index.value());
    if (status.ok()) status = AppendTokens(entry);
    if (status.ok()) status = AppendRows(entry, static_cast<int32_t>(i));
    if (!status.ok() && failure.ok()) failure = std::move(status);
  }
  PM_RETURN_IF_ERROR(std::move(failure));
  PM_RETURN_IF_ERROR(CheckCommonBlocks(plan));
  view_ = {.num_tokens = static_cast<int32_t>(token_ids_.size()),
           .num_requests = static_cast<int32_t>(seq_lens_.size()),
           .num_logits_rows = static_cast<int32_t>(logits_rows_.size()),
           .block_size = limits_.block_size,
           .num_common_blocks = NumCommonBlocks(plan),
           .token_ids = token_ids_.data(),
           .positions = positions_.data(),
           .slot_mapping = slot_mapping_.data(),
           .query_start = query_start_.data(),
           .seq_lens = seq_lens_.data(),
           .block_table = batch_tables_.data(),
           .block_table_stride = stride_,
           .logits_rows = logits_rows_.data()};
  return OkStatus();
}

Status BatchState::CheckCommonBlocks(const step::StepPlan& plan) const {
  const int32_t count = NumCommonBlocks(plan);
  for (size_t i = 0; count > 0 && i < plan.scheduled.size(); ++i) {
    const int32_t* table = &batch_tables_[i * static_cast<size_t>(stride_)];
    if (plan.scheduled[i].num_computed_tokens < int64_t{count} * limits_.block_size ||
        !std::equal(table, table + count, batch_tables_.begin())) {
      return BadPlan(plan.scheduled[i], "it does not have the " + std::to_string(count) +
                                            " blocks that all are said to have in common");
    }
  }
  return OkStatus();
}

Status BatchState::ApplyBlocks(const step::ScheduledRequest& entry) {
  const int32_t index = entry.index.value();
  Slot& slot = slots_[static_cast<size_t>(index)];
  if (entry.start != nullptr) {
    slot.request = entry.start;
    slot.num_blocks = 0;
    ++slot.epoch;
  }
  if (slot.request == nullptr) return BadPlan(entry, "it runs but holds no request");
  if (entry.new_block_ids.size() > 1) {
    return BadPlan(entry, "it has blocks of more than one KV group");
  }
  if (entry.new_block_ids.empty()) return OkStatus();
  const std::vector<step::BlockId>& added = entry.new_block_ids[0];
  if (slot.num_blocks + static_cast<int64_t>(added.size()) > stride_) {
    return BadPlan(entry, "it has more blocks than max_model_len needs");
  }
  for (step::BlockId block : added) {
    if (block.value() < 0 || block.value() >= limits_.num_blocks) {
      return BadPlan(entry, "block " + std::to_string(block.value()) + " does not exist");
    }
    SlotTable(index)[slot.num_blocks++] = block.value();
  }
  return OkStatus();
}

void BatchState::MirrorTable(size_t row, int32_t index) {
  const Slot& slot = slots_[static_cast<size_t>(index)];
  Mirror& mirror = mirrors_[row];
  const bool same = mirror.slot == index && mirror.epoch == slot.epoch;
  const int32_t first = same ? mirror.num_blocks : 0;
  const int32_t* table = SlotTable(index);
  std::copy(table + first, table + slot.num_blocks,
            &batch_tables_[row * static_cast<size_t>(stride_)] + first);
  mirror = {.slot = index, .epoch = slot.epoch, .num_blocks = slot.num_blocks};
}

Status BatchState::AppendTokens(const step::ScheduledRequest& entry) {
  const Slot& slot = slots_[static_cast<size_t>(entry.index.value())];
  const int64_t count = entry.num_tokens();
  const int64_t seq_len = entry.num_computed_tokens + count;
  if (count < 1 || entry.num_computed_tokens < 0) return BadPlan(entry, "it runs no token");
  if (seq_len > int64_t{slot.num_blocks} * limits_.block_size) {
    return BadPlan(entry, std::to_string(seq_len) + " tokens do not fit in its " +
                              std::to_string(slot.num_blocks) + " blocks");
  }
  if (static_cast<int64_t>(token_ids_.size()) + count > limits_.max_num_tokens) {
    return BadPlan(entry, "the step has more than max_num_tokens tokens");
  }
  const int32_t* table = SlotTable(entry.index.value());
  token_ids_.insert(token_ids_.end(), entry.token_ids.begin(), entry.token_ids.end());
  token_ids_.insert(token_ids_.end(), entry.draft_token_ids.begin(), entry.draft_token_ids.end());
  for (int32_t p = entry.num_computed_tokens; p < seq_len; ++p) {
    positions_.push_back(p);
    slot_mapping_.push_back(table[p / limits_.block_size] * limits_.block_size +
                            p % limits_.block_size);
  }
  query_start_.push_back(static_cast<int32_t>(token_ids_.size()));
  seq_lens_.push_back(static_cast<int32_t>(seq_len));
  return OkStatus();
}

Status BatchState::AppendRows(const step::ScheduledRequest& entry, int32_t entry_index) {
  const step::Request& request = *slots_[static_cast<size_t>(entry.index.value())].request;
  if (request.pooling) return OkStatus();
  const int32_t first_token = query_start_[query_start_.size() - 2];
  const std::vector<int32_t>& prompt = request.prompt_token_ids;
  const int32_t count = static_cast<int32_t>(entry.token_ids.size());
  if (entry.prompt_logprobs) {
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
      rows_.push_back({.entry = entry_index});
    }
  }
  if (static_cast<int64_t>(rows_.size()) <= limits_.max_num_logits_rows) return OkStatus();
  return BadPlan(entry, "the step has more than max_num_logits_rows = " +
                            std::to_string(limits_.max_num_logits_rows) + " rows of logits");
}

void BatchState::CheckIntegrity() const {
  for (const Slot& slot : slots_) {
    PM_CHECK(slot.num_blocks >= 0 && slot.num_blocks <= stride_);
  }
  for (size_t row = 0; row < mirrors_.size(); ++row) {
    const Mirror& mirror = mirrors_[row];
    if (mirror.slot < 0) continue;
    const Slot& slot = slots_[static_cast<size_t>(mirror.slot)];
    if (slot.epoch != mirror.epoch) continue;  // will be copied anew
    PM_CHECK(mirror.num_blocks <= slot.num_blocks);
    const auto mirrored = batch_tables_.begin() + static_cast<std::ptrdiff_t>(row * stride_);
    PM_CHECK(std::equal(mirrored, mirrored + mirror.num_blocks,
                        slot_tables_.begin() + mirror.slot * stride_));
  }
}

}  // namespace pagemill::runner
