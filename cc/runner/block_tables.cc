#include "cc/runner/block_tables.h"

#include <algorithm>
#include <string>

namespace pagemill::runner {

namespace {

int32_t BlockSize(const step::KvGroupOptions& group, const engine::RunnerLimits& limits) {
  return group.block_size > 0 ? group.block_size : limits.block_size;
}

}  // namespace

int32_t BlockTables::MaxEntries(const step::KvGroupOptions& group,
                                const engine::RunnerLimits& limits) {
  const int32_t block_size = BlockSize(group, limits);
  return group.recent_states + (limits.max_model_len + block_size - 1) / block_size;
}

BlockTables::BlockTables(const step::KvGroupOptions& group, const engine::RunnerLimits& limits)
    : block_size_(BlockSize(group, limits)),
      num_blocks_(limits.num_blocks),
      recent_states_(group.recent_states),
      has_blocks_(recent_states_ == 0 || group.checkpoints != step::StateCheckpoints::kNone),
      stride_(MaxEntries(group, limits)),
      slots_(static_cast<size_t>(limits.max_num_seqs)),
      slot_tables_(At(slots_.size())),
      row_tables_(slot_tables_.size()),
      mirrors_(slots_.size()) {
  slot_mapping_.reserve(static_cast<size_t>(limits.max_num_tokens));
}

void BlockTables::BeginStep() {
  num_rows_ = 0;
  slot_mapping_.clear();
}

void BlockTables::Reset(int32_t slot) {
  Slot& s = slots_[static_cast<size_t>(slot)];
  s.num_blocks = 0;
  ++s.epoch;
}

Status BlockTables::Append(int32_t slot, std::span<const step::BlockId> blocks) {
  Slot& s = slots_[static_cast<size_t>(slot)];
  if (s.num_blocks + static_cast<int64_t>(blocks.size()) > stride_) {
    return Internal("it has more blocks than max_model_len needs");
  }
  int32_t* table = &slot_tables_[At(static_cast<size_t>(slot))];
  for (step::BlockId block : blocks) {
    if (block.value() < 0 || block.value() >= num_blocks_) {
      return Internal("block " + std::to_string(block.value()) + " does not exist");
    }
    table[s.num_blocks++] = block.value();
  }
  return OkStatus();
}

int64_t BlockTables::NumTokens(int32_t slot) const {
  const int64_t blocks = slots_[static_cast<size_t>(slot)].num_blocks - recent_states_;
  if (!has_blocks_) return blocks < 0 ? 0 : stride_ * block_size_;
  return std::max<int64_t>(0, blocks) * block_size_;
}

void BlockTables::AddRequest(int32_t slot, int32_t first_position, int32_t count) {
  MirrorTable(num_rows_, slot);
  const int32_t* table = &row_tables_[At(num_rows_++)] + recent_states_;
  for (int32_t p = first_position; p < first_position + count; ++p) {
    slot_mapping_.push_back(table[p / block_size_] * block_size_ + p % block_size_);
  }
}

void BlockTables::MirrorTable(size_t row, int32_t slot) {
  const Slot& s = slots_[static_cast<size_t>(slot)];
  Mirror& mirror = mirrors_[row];
  const bool same = mirror.slot == slot && mirror.epoch == s.epoch;
  const int32_t first = same ? mirror.num_blocks : 0;
  const int32_t* table = &slot_tables_[At(static_cast<size_t>(slot))];
  std::copy(table + first, table + s.num_blocks, &row_tables_[At(row)] + first);
  mirror = {.slot = slot, .epoch = s.epoch, .num_blocks = s.num_blocks};
}

bool BlockTables::SharesFirst(size_t row, int32_t count) const {
  if (count > mirrors_[row].num_blocks || count > mirrors_[0].num_blocks) return false;
  const int32_t* first = &row_tables_[At(0)];
  return std::equal(first, first + count, &row_tables_[At(row)]);
}

ops::KvArrays BlockTables::View(int32_t num_common_blocks) const {
  return {.block_size = block_size_,
          .num_common_blocks = num_common_blocks,
          .recent_states = recent_states_,
          .slot_mapping = slot_mapping_.data(),
          .block_table = row_tables_.data(),
          .block_table_stride = stride_};
}

void BlockTables::CheckIntegrity() const {
  for (const Slot& slot : slots_) {
    PAGEMILL_CHECK(slot.num_blocks >= 0 && slot.num_blocks <= stride_);
  }
  for (size_t row = 0; row < mirrors_.size(); ++row) {
    const Mirror& mirror = mirrors_[row];
    if (mirror.slot < 0) continue;
    const Slot& slot = slots_[static_cast<size_t>(mirror.slot)];
    if (slot.epoch != mirror.epoch) continue;  // will be copied again
    PAGEMILL_CHECK(mirror.num_blocks <= slot.num_blocks);
    const int32_t* copied = &row_tables_[At(row)];
    PAGEMILL_CHECK(std::equal(copied, copied + mirror.num_blocks,
                              &slot_tables_[At(static_cast<size_t>(mirror.slot))]));
  }
}

}  // namespace pagemill::runner
