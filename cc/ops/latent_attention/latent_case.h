// File: cc/ops/latent_attention/latent_case.h
// One call of `latent_attention` with random queries and latents, for its conformance checks and
// benchmark: the cache is NaN except for the latents of the requests' tokens. Blocks that no query
// sees are removed from the block table. Test code only.
#ifndef PAGEMILL_CC_OPS_LATENT_ATTENTION_LATENT_CASE_H_
#define PAGEMILL_CC_OPS_LATENT_ATTENTION_LATENT_CASE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cc/ops/conformance.h"
#include "cc/ops/latent_write/latent_f8_row.h"
#include "cc/ops/op.h"
#include "cc/ops/paged_batch.h"

namespace pagemill::ops::conformance {

struct LatentOptions {
  int64_t heads = 5;
  int64_t size = 40;
  int64_t rope_size = 12;  // 0: there is no such operand
  int32_t block_size = 16;
  DType dtype = DType::kBF16;  // of the cache
  int64_t bf16_elements = 0;   // of its rows, if it is in fp8
  DType act = DType::kF32;
  int32_t choices = 0;  // rows that each query sees; 0: all
  int32_t window = 0;   // tokens that a query sees; 0: all
  int32_t tokens_of_row = 1;
  bool sums = false;  // whether there is lse
};

class LatentCase {
 public:
  // Query and latent of a token depend only on its request's number and its position (request r has
  // number ids[r], or r).
  LatentCase(const LatentOptions& options, std::vector<PagedRequest> requests,
             std::vector<int32_t> ids = {});
  LatentCase(const LatentCase&) = delete;

  // Poisons the outputs with NaN, runs the call and returns the rows of y, [T, heads * size], and
  // behind them lse, [T, heads], if there is one.
  std::vector<float> Run(const Kernel& kernel, device::ThreadPool& pool);
  const OpCall& call() const { return call_; }
  // Bytes of the cache that the step's queries see.
  int64_t visible_bytes() const { return visible_bytes_; }

 private:
  void StoreContext(int64_t request, int32_t id);
  void StoreRow(const std::vector<float>& values, std::byte* to) const;
  LatentF8Row F8Row() const;
  int64_t CacheWidth() const;  // elements of a row of the cache's tensor

  LatentOptions options_;
  PagedBatch batch_;
  TestTensor q_, rope_, cache_, chosen_, y_, sums_;
  Attributes attributes_;
  TensorView inputs_[4];
  TensorView outputs_[2];
  OpCall call_;
  int64_t visible_bytes_ = 0;
};

}  // namespace pagemill::ops::conformance

#endif  // PAGEMILL_CC_OPS_LATENT_ATTENTION_LATENT_CASE_H_
