// File: cc/program/testing/step_arrays.h
// A step's batch, built the plain way, for tests that run an executor without a scheduler. Test
// code only.
//
//   StepArrays arrays(/*block_size=*/16, /*blocks_per_request=*/4);
//   arrays.Add(/*slot=*/0, /*first_position=*/0, {5, 6, 7});   // its last token gets a logits row
//   executor->Execute(arrays.view(), &output);
#ifndef PAGEMILL_CC_PROGRAM_TESTING_STEP_ARRAYS_H_
#define PAGEMILL_CC_PROGRAM_TESTING_STEP_ARRAYS_H_

#include <cstdint>
#include <vector>

#include "cc/ops/batch_view.h"

namespace pagemill::program::testing {

// Slot s owns blocks [1 + s * blocks_per_request, 1 + (s + 1) * blocks_per_request), last one
// first.
class StepArrays {
 public:
  StepArrays(int32_t block_size, int32_t blocks_per_request)
      : block_size_(block_size), blocks_per_request_(blocks_per_request) {}

  void Add(int32_t slot, int32_t first_position, const std::vector<int32_t>& token_ids) {
    const size_t table = block_table_.size();
    for (int32_t b = blocks_per_request_; b > 0; --b) {
      block_table_.push_back(slot * blocks_per_request_ + b);
    }
    int32_t position = first_position;
    for (int32_t id : token_ids) {
      token_ids_.push_back(id);
      positions_.push_back(position);
      const int32_t block = block_table_[table + static_cast<size_t>(position / block_size_)];
      slot_mapping_.push_back(block * block_size_ + position % block_size_);
      ++position;
    }
    query_start_.push_back(static_cast<int32_t>(token_ids_.size()));
    seq_lens_.push_back(position);
    logits_rows_.push_back(static_cast<int32_t>(token_ids_.size()) - 1);
  }

  ops::BatchView view() const {
    return {.num_tokens = static_cast<int32_t>(token_ids_.size()),
            .num_requests = static_cast<int32_t>(seq_lens_.size()),
            .num_logits_rows = static_cast<int32_t>(logits_rows_.size()),
            .block_size = block_size_,
            .token_ids = token_ids_.data(),
            .positions = positions_.data(),
            .slot_mapping = slot_mapping_.data(),
            .query_start = query_start_.data(),
            .seq_lens = seq_lens_.data(),
            .block_table = block_table_.data(),
            .block_table_stride = blocks_per_request_,
            .logits_rows = logits_rows_.data()};
  }

 private:
  int32_t block_size_;
  int32_t blocks_per_request_;
  std::vector<int32_t> token_ids_, positions_, slot_mapping_, query_start_ = {0}, seq_lens_;
  std::vector<int32_t> block_table_, logits_rows_;
};

}  // namespace pagemill::program::testing

#endif  // PAGEMILL_CC_PROGRAM_TESTING_STEP_ARRAYS_H_
