// File: cuda/ops/paged_attention/flashinfer/testing/plan_batch.h
// Steps whose plans are tested, and plans in memory that shows what is written behind them.
#ifndef PAGEMILL_CUDA_OPS_PAGED_ATTENTION_FLASHINFER_TESTING_PLAN_BATCH_H_
#define PAGEMILL_CUDA_OPS_PAGED_ATTENTION_FLASHINFER_TESTING_PLAN_BATCH_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <vector>

#include "cuda/ops/paged_attention/flashinfer/plan.h"

namespace pagemill::gpu {

struct PlanBatch {
  FlashInferShape shape;
  std::vector<int32_t> query_start = {0};  // [requests + 1]
  std::vector<int32_t> seq_lens = {};      // [requests]

  // `shape` of requests with so many tokens in the step behind contexts of these lengths.
  static PlanBatch Of(FlashInferShape shape, const std::vector<int32_t>& tokens,
                      const std::vector<int32_t>& contexts) {
    PlanBatch batch = {.shape = shape};
    for (size_t r = 0; r < tokens.size(); ++r) {
      batch.query_start.push_back(batch.query_start.back() + tokens[r]);
      batch.seq_lens.push_back(contexts[r] + tokens[r]);
    }
    batch.shape.tokens = batch.query_start.back();
    batch.shape.requests = static_cast<int32_t>(tokens.size());
    batch.shape.table_stride = *std::ranges::max_element(batch.seq_lens) / shape.block_size + 3;
    return batch;
  }
  int32_t Tokens(int32_t r) const { return query_start[r + 1] - query_start[r]; }
};

class PlanRandom {
 public:
  int32_t Int(int32_t low, int32_t high) {
    return std::uniform_int_distribution<int32_t>(low, high)(engine_);
  }
  int32_t Choose(std::initializer_list<int32_t> values) {
    return values.begin()[Int(0, static_cast<int32_t>(values.size()) - 1)];
  }

 private:
  std::mt19937 engine_{1};
};

// What `kMake` (PlanFlashInfer, PlanHopper) plans, in memory of a step of up to `most`, with bytes
// behind it that nothing may change.
template <typename View, auto& kMake>
class GuardedPlan {
 public:
  GuardedPlan(const PlanBatch& batch, const FlashInferShape& most)
      : bytes_(View::Bytes(most)),
        memory_(static_cast<size_t>(bytes_) + kGuardBytes, kGuard),
        view_(View::Of(batch.shape, memory_.data())) {
    kMake(batch.shape, batch.query_start.data(), batch.seq_lens.data(), memory_.data());
  }
  explicit GuardedPlan(const PlanBatch& batch) : GuardedPlan(batch, batch.shape) {}

  const View& view() const { return view_; }
  bool IsIntact() const {
    return std::all_of(memory_.begin() + bytes_, memory_.end(),
                       [](std::byte b) { return b == kGuard; });
  }

 private:
  static constexpr size_t kGuardBytes = 4096;
  static constexpr std::byte kGuard{0xa5};
  const int64_t bytes_;
  std::vector<std::byte> memory_;
  const View view_;
};

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_PAGED_ATTENTION_FLASHINFER_TESTING_PLAN_BATCH_H_
