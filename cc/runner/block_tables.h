// File: cc/runner/block_tables.h
// The block tables of one KV group: those of each slot, kept from step to step, and those of the
// step's requests in running order, which kernels read (ops::KvArrays).
//
//   BlockTables tables(group, limits);
//   tables.BeginStep();
//   tables.Reset(slot);                                  // it holds another request
//   PAGEMILL_RETURN_IF_ERROR(tables.Append(slot, entry.new_block_ids[g]));
//   tables.AddRequest(slot, /*first_position=*/40, /*count=*/1);
//   kv.push_back(tables.View(/*num_common_blocks=*/0));
//
// Cost of a step: O(tokens + new blocks); a table is copied whole only when its request moves to
// another place in the running order. No allocation once the arrays have been used. Thread safety:
// none.
#ifndef PAGEMILL_CC_RUNNER_BLOCK_TABLES_H_
#define PAGEMILL_CC_RUNNER_BLOCK_TABLES_H_

#include <cstdint>
#include <span>
#include <vector>

#include "cc/base/status.h"
#include "cc/engine/runner.h"  // RunnerLimits
#include "cc/ops/batch_view.h"
#include "cc/step/kv_group_options.h"
#include "cc/step/request.h"

namespace pagemill::runner {

class BlockTables {
 public:
  BlockTables(const step::KvGroupOptions& group, const engine::RunnerLimits& limits);

  // Entries of the table of the longest request.
  static int32_t MaxEntries(const step::KvGroupOptions& group, const engine::RunnerLimits& limits);

  int32_t block_size() const { return block_size_; }

  void BeginStep();
  void Reset(int32_t slot);
  // kInternal if the slot would have more blocks than the longest request, or a block does not
  // exist.
  Status Append(int32_t slot, std::span<const step::BlockId> blocks);
  // Tokens that the slot's blocks have room for.
  int64_t NumTokens(int32_t slot) const;
  // The next request of the running order: it runs `count` tokens from `first_position` on, which
  // lie within NumTokens().
  void AddRequest(int32_t slot, int32_t first_position, int32_t count);
  // Does the request in this place of the running order begin with the same `count` blocks as the
  // first?
  bool SharesFirst(size_t row, int32_t count) const;
  // Arrays of the requests added since BeginStep(); valid until the next call.
  ops::KvArrays View(int32_t num_common_blocks) const;

  // Aborts if slots and running order are inconsistent. O(slots x blocks).
  void CheckIntegrity() const;

 private:
  struct Slot {
    uint64_t epoch = 0;  // grows whenever the slot's table starts over
    int32_t num_blocks = 0;
  };
  // The slot table that a row of the running order is a copy of.
  struct Mirror {
    int32_t slot = -1;
    uint64_t epoch = 0;
    int32_t num_blocks = 0;
  };

  // Offset of the table of a row or slot.
  size_t At(size_t row) const { return row * static_cast<size_t>(stride_); }
  void MirrorTable(size_t row, int32_t slot);

  const int32_t block_size_;  // tokens
  const int32_t num_blocks_;     // of the arena
  const int32_t recent_states_;  // entries of a table that come before its blocks
  const bool has_blocks_;        // false: entries behind those are null
  const int64_t stride_;         // entries of the longest request
  std::vector<Slot> slots_;
  std::vector<int32_t> slot_tables_;   // [slots, stride], in slot order
  std::vector<int32_t> row_tables_;    // [slots, stride], in running order
  std::vector<Mirror> mirrors_;        // of each row
  size_t num_rows_ = 0;                // requests of the step
  std::vector<int32_t> slot_mapping_;  // [tokens]
};

}  // namespace pagemill::runner

#endif  // PAGEMILL_CC_RUNNER_BLOCK_TABLES_H_
