// File: cc/ops/select_tokens/token_case.h
// One call of `select_tokens` with random small integers, for its conformance checks and benchmark:
// all products and sums are exact, and many scores are equal. The cache is NaN except for the keys
// of the requests' tokens. Test code only.
#ifndef PAGEMILL_CC_OPS_SELECT_TOKENS_TOKEN_CASE_H_
#define PAGEMILL_CC_OPS_SELECT_TOKENS_TOKEN_CASE_H_

#include <cstdint>
#include <vector>

#include "cc/ops/conformance.h"
#include "cc/ops/op.h"
#include "cc/ops/paged_batch.h"

namespace pagemill::ops::conformance {

struct TokenOptions {
  int64_t heads = 5;
  int64_t size = 40;
  int64_t rope_size = 12;  // 0: there is no such operand
  int64_t choices = 7;
  int32_t block_size = 16;
  DType dtype = DType::kBF16;
  int32_t tokens_of_row = 1;
};

class TokenCase {
 public:
  // Query, weights and key of a token depend only on its request's number and its position (request
  // r has number ids[r], or r).
  TokenCase(const TokenOptions& options, std::vector<PagedRequest> requests,
            std::vector<int32_t> ids = {});
  TokenCase(const TokenCase&) = delete;

  // Poisons the output, runs the call and returns the rows of positions, [T, choices].
  std::vector<float> Run(const Kernel& kernel, device::ThreadPool& pool);
  const OpCall& call() const { return call_; }

 private:
  void StoreContext(int64_t request, int32_t id);

  TokenOptions options_;
  PagedBatch batch_;
  TestTensor q_, rope_, weights_, cache_, chosen_;
  Attributes attributes_;
  TensorView inputs_[4];
  TensorView outputs_[1];
  OpCall call_;
};

}  // namespace pagemill::ops::conformance

#endif  // PAGEMILL_CC_OPS_SELECT_TOKENS_TOKEN_CASE_H_
