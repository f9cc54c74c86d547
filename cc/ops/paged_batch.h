// File: cc/ops/paged_batch.h
// A step's batch over a paged cache, for tests and benchmarks of the ops that read one: requests
// get blocks in shuffled order, and the arrays of a BatchView are derived from their lengths.
//
//   PagedBatch batch(/*block_size=*/16,
//                    {{.context = 100, .tokens = 1}, {.context = 0, .tokens = 7}}, random);
//   OpCall call{..., .batch = &batch.view()};
//
// Test code only.
#ifndef PAGEMILL_CC_OPS_PAGED_BATCH_H_
#define PAGEMILL_CC_OPS_PAGED_BATCH_H_

#include <cstdint>
#include <vector>

#include "cc/ops/batch_view.h"
#include "cc/ops/conformance.h"

namespace pagemill::ops::conformance {

struct PagedRequest {
  int32_t context = 0;  // tokens whose keys and values are in the cache before the step
  int32_t tokens = 0;   // tokens of the step
};

class PagedBatch {
 public:
  // `capacity`: blocks are assigned for this many tokens of each request at least, so that a longer
  // batch of the same requests, built with the same seed, finds the same blocks.
  PagedBatch(int32_t block_size, std::vector<PagedRequest> requests, Random random,
             int32_t capacity = 0);

  const BatchView& view() const { return view_; }
  const std::vector<PagedRequest>& requests() const { return requests_; }
  int64_t num_blocks() const { return num_blocks_; }
  // The slot of a token of a request: block * block_size + offset.
  int64_t Slot(int64_t request, int32_t position) const;
  // Gives all requests the first `count` blocks of the first one and sets num_common_blocks.
  void ShareBlocks(int32_t count);
  // Sets item_ends: each request has an item at the positions [begin, end), as far as it goes.
  void SetItems(int32_t begin, int32_t end);
  // Sets encoder_ends, of each request.
  void SetEncoderEnds(const std::vector<int32_t>& ends);
  // Resets num_common_blocks.
  void HideSharing() { view_.num_common_blocks = 0; }
  // Points the table to a block far outside the cache: reading it crashes the test.
  void ForgetBlock(int64_t request, int32_t index);

 private:
  std::vector<PagedRequest> requests_;
  int32_t block_size_;
  int64_t stride_ = 0;
  int64_t num_blocks_ = 0;
  std::vector<int32_t> positions_, slots_, query_start_, seq_lens_, block_table_, item_ends_,
      encoder_ends_;
  BatchView view_;
};

// The vector of one token: `size` numbers of mean 0 and variance 1, a function of its role (query,
// key, ...), its request's number and its position.
std::vector<float> TokenVector(uint64_t role, int32_t request, int32_t position, int64_t size);

}  // namespace pagemill::ops::conformance

#endif  // PAGEMILL_CC_OPS_PAGED_BATCH_H_
