#include "cc/ops/paged_batch.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace pagemill::ops::conformance {

PagedBatch::PagedBatch(int32_t block_size, std::vector<PagedRequest> requests, Random random,
                       int32_t capacity)
    : requests_(std::move(requests)), block_size_(block_size) {
  for (const PagedRequest& request : requests_) {
    const int32_t tokens = std::max(capacity, request.context + request.tokens);
    stride_ = std::max<int64_t>(stride_, (tokens + block_size - 1) / block_size);
  }
  const int64_t count = static_cast<int64_t>(requests_.size());
  num_blocks_ = stride_ * count + 1;  // block 0 belongs to no request
  std::vector<int32_t> blocks(num_blocks_ - 1);
  std::iota(blocks.begin(), blocks.end(), 1);
  for (size_t i = blocks.size(); i > 1; --i) {
    std::swap(blocks[i - 1], blocks[random.Int(0, static_cast<int64_t>(i) - 1)]);
  }
  block_table_ = std::move(blocks);
  query_start_.push_back(0);
  for (int64_t r = 0; r < count; ++r) {
    const PagedRequest& request = requests_[r];
    for (int32_t i = 0; i < request.tokens; ++i) {
      positions_.push_back(request.context + i);
      slots_.push_back(static_cast<int32_t>(Slot(r, request.context + i)));
    }
    query_start_.push_back(static_cast<int32_t>(positions_.size()));
    seq_lens_.push_back(request.context + request.tokens);
  }
  view_.num_tokens = static_cast<int32_t>(positions_.size());
  view_.num_requests = static_cast<int32_t>(count);
  view_.block_size = block_size;
  view_.positions = positions_.data();
  view_.slot_mapping = slots_.data();
  view_.query_start = query_start_.data();
  view_.seq_lens = seq_lens_.data();
  view_.block_table = block_table_.data();
  view_.block_table_stride = stride_;
}

int64_t PagedBatch::Slot(int64_t request, int32_t position) const {
  const int64_t block = block_table_[request * stride_ + position / block_size_];
  return block * block_size_ + position % block_size_;
}

void PagedBatch::ShareBlocks(int32_t count) {
  for (int64_t r = 1; r < view_.num_requests; ++r) {
    std::copy_n(block_table_.begin(), count, block_table_.begin() + r * stride_);
  }
  view_.num_common_blocks = count;
}

void PagedBatch::SetItems(int32_t begin, int32_t end) {
  for (const PagedRequest& request : requests_) {
    const int32_t last = request.context + request.tokens;
    for (int32_t p = request.context; p < last; ++p) {
      item_ends_.push_back(p >= begin && p < end ? std::min(end, last) : 0);
    }
  }
  view_.item_ends = item_ends_.data();
}

void PagedBatch::SetEncoderEnds(const std::vector<int32_t>& ends) {
  for (size_t r = 0; r < requests_.size(); ++r) {
    encoder_ends_.insert(encoder_ends_.end(), static_cast<size_t>(requests_[r].tokens), ends[r]);
  }
  view_.encoder_ends = encoder_ends_.data();
}

void PagedBatch::ForgetBlock(int64_t request, int32_t index) {
  block_table_[request * stride_ + index] = 1 << 30;
}

std::vector<float> TokenVector(uint64_t role, int32_t request, int32_t position, int64_t size) {
  Random random(role * 1000003 + static_cast<uint64_t>(request) * 7919 +
                static_cast<uint64_t>(position) * 104729);
  std::vector<float> values(static_cast<size_t>(size));
  for (float& v : values) v = random.Uniform(-1.7320508f, 1.7320508f);
  return values;
}

}  // namespace pagemill::ops::conformance
