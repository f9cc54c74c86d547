// File: cc/program/testing/batch_builder.h
// Builds a step's batch directly, for tests that run an executor without a scheduler. Test code
// only.
//
//   BatchBuilder batch(/*block_size=*/16, /*blocks_per_request=*/4);
//   batch.Add(/*slot=*/0, /*first_position=*/0, {5, 6, 7});   // its last token gets a logits row
//   executor->Execute(batch.view(), &output);
#ifndef PAGEMILL_CC_PROGRAM_TESTING_BATCH_BUILDER_H_
#define PAGEMILL_CC_PROGRAM_TESTING_BATCH_BUILDER_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "cc/ops/batch_view.h"

namespace pagemill::program::testing {

// Every slot has its own pages in every block table, in descending order.
class BatchBuilder {
 public:
  BatchBuilder(int32_t block_size, int32_t blocks_per_request)
      : BatchBuilder(std::vector<int32_t>{block_size}, blocks_per_request) {}
  // `block_sizes`: one per block table.
  BatchBuilder(const std::vector<int32_t>& block_sizes, int32_t blocks_per_request)
      : blocks_per_request_(blocks_per_request), tables_(block_sizes.size()) {
    for (size_t t = 0; t < tables_.size(); ++t) tables_[t].block_size = block_sizes[t];
  }

  // The number of pages for `slots` slots, the null page included.
  int32_t NumPages(int32_t slots) const {
    return 1 + slots * blocks_per_request_ * static_cast<int32_t>(tables_.size());
  }

  void Add(int32_t slot, int32_t first_position, const std::vector<int32_t>& token_ids) {
    int32_t last_page = slot * blocks_per_request_ * static_cast<int32_t>(tables_.size());
    for (Table& table : tables_) {
      last_page += blocks_per_request_;
      for (int32_t b = 0; b < blocks_per_request_; ++b) table.blocks.push_back(last_page - b);
      const int32_t* blocks = &table.blocks[table.blocks.size() - blocks_per_request_];
      for (size_t i = 0; i < token_ids.size(); ++i) {
        const int32_t position = first_position + static_cast<int32_t>(i);
        table.slots.push_back(blocks[position / table.block_size] * table.block_size +
                              position % table.block_size);
      }
    }
    for (int32_t id : token_ids) {
      positions_.push_back(first_position++);
      token_ids_.push_back(id);
    }
    query_start_.push_back(static_cast<int32_t>(token_ids_.size()));
    seq_lens_.push_back(first_position);
    logits_rows_.push_back(static_cast<int32_t>(token_ids_.size()) - 1);
  }

  // Valid until the next call of a member function. Threads need a builder each.
  ops::StepBatch view() const {
    kv_.clear();
    for (const Table& table : tables_) {
      kv_.push_back({.block_size = table.block_size,
                     .slot_mapping = table.slots.data(),
                     .block_table = table.blocks.data(),
                     .block_table_stride = blocks_per_request_});
    }
    return {{.num_tokens = static_cast<int32_t>(token_ids_.size()),
             .num_requests = static_cast<int32_t>(seq_lens_.size()),
             .num_logits_rows = static_cast<int32_t>(logits_rows_.size()),
             .token_ids = token_ids_.data(),
             .positions = positions_.data(),
             .query_start = query_start_.data(),
             .seq_lens = seq_lens_.data(),
             .logits_rows = logits_rows_.data()},
            kv_,
            /*inputs=*/{}};
  }

 private:
  struct Table {
    int32_t block_size = 0;
    std::vector<int32_t> slots, blocks;
  };

  int32_t blocks_per_request_;
  std::vector<Table> tables_;
  std::vector<int32_t> token_ids_, positions_, query_start_ = {0}, seq_lens_, logits_rows_;
  mutable std::vector<ops::KvArrays> kv_;  // storage of view()
};

}  // namespace pagemill::program::testing

#endif  // PAGEMILL_CC_PROGRAM_TESTING_BATCH_BUILDER_H_
