// File: cc/runner/draft_sampler.h
// Samples draft tokens from a draft model's logits, and keeps the distributions that they were
// drawn from, which the target's sampler needs to verify them (cc/sampling/rejection_sampler.h).
//
//   DraftSampler sampler({.num_columns = 151936, .vocab_size = 151936, ...}, &pool);
//   sampler.Begin(/*num_drafts=*/8);
//   PAGEMILL_RETURN_IF_ERROR(sampler.Run(output, rows));  // chooses a draft for each row
//   sampler.token_id(3), sampler.probabilities(3)    // of the draft 3 of the step
//
// Greedy requests get the most likely token. Others get one that is drawn under the request's
// temperature, top_k, top_p and minimum probability; penalties, biases and masks are left to the
// target, which may reject what they change. A row that is not finite gets token 0.
//
// A model with several heads returns logits of several tokens for one row: those of the next token
// as the output "logits", those of the n-th one after it as "logits.n".
//
// Memory: vocab_size floats for each drawn draft of a step. Thread safety: used by the
// engine thread only; Run() spreads rows over the pool.
#ifndef PAGEMILL_CC_RUNNER_DRAFT_SAMPLER_H_
#define PAGEMILL_CC_RUNNER_DRAFT_SAMPLER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cc/base/status.h"
#include "cc/device/capabilities.h"
#include "cc/device/thread_pool.h"
#include "cc/ops/sample/row_passes.h"
#include "cc/program/executor.h"
#include "cc/step/request.h"
#include "cc/tensor/tensor_view.h"

namespace pagemill::runner {

struct DraftSamplerOptions {
  int32_t num_columns = 0;  // tokens that both models know: the first columns of the logits
  int32_t vocab_size = 0;   // of the target; at least num_columns
  // The target's id of each column; empty: the same. Outlives the sampler.
  std::span<const int32_t> token_ids = {};
  int32_t num_heads = 1;  // outputs of logits
  device::Capabilities capabilities = {};
};

// A row of the draft model's logits.
struct DraftRow {
  size_t draft = 0;  // of the step: which one is chosen from the row
  int64_t row = 0;   // of the output
  int32_t head = 0;  // which output
  const step::SamplingParams* params = nullptr;
  int32_t position = 0;  // of the token in the output
};

class DraftSampler {
 public:
  DraftSampler(const DraftSamplerOptions& options, device::ThreadPool* pool);

  void Begin(size_t num_drafts);
  // `output` has logits, or maxima of those of one head. A request that is not greedy needs logits.
  // kInternal if logits are missing, or of fewer tokens than may be proposed.
  Status Run(const program::ExecutorOutput& output, std::span<const DraftRow> rows);

  // Tokens of the drafts since Begin(); valid until the next.
  std::span<const int32_t> token_ids() const { return token_ids_; }
  // [vocab_size]; null if the draft was not drawn.
  const float* probabilities(size_t draft) const {
    return drawn_[draft] ? probabilities_[draft].data() : nullptr;
  }

 private:
  void Choose(std::span<const float> logits, const DraftRow& row,
              std::span<ops::Candidate> storage);
  int32_t TokenOf(int32_t column) const {
    return options_.token_ids.empty() ? column : options_.token_ids[static_cast<size_t>(column)];
  }

  const DraftSamplerOptions options_;
  device::ThreadPool* const pool_;
  const ops::RowPasses& passes_;
  std::vector<std::string> names_;                    // of the outputs
  std::vector<TensorView> logits_;                    // likewise
  std::vector<std::vector<ops::Candidate>> storage_;  // of each worker
  std::vector<int32_t> token_ids_;
  std::vector<char> drawn_;  // of each draft; not bits, which threads would share
  std::vector<std::vector<float>> probabilities_;
};

}  // namespace pagemill::runner

#endif  // PAGEMILL_CC_RUNNER_DRAFT_SAMPLER_H_
