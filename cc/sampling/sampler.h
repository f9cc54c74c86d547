// File: cc/sampling/sampler.h
// From logits to tokens, for every request of a step. Owns what sampling must remember of a request
// (which tokens occurred, how many were sampled); the order of operations is docs/sampling.md.
//
//   Sampler sampler({.max_num_seqs = 128, .vocab_size = 49152}, &pool);
//   sampler.Start(index, request, {});
//   std::vector<LogitsRow> rows = {{.index = index, .logits = row}};
//   std::vector<RowOutput> out(rows.size());
//   sampler.Run(rows, out);
//
// Deterministic: a token depends on the row of logits, the request's parameters and seed, and the
// number of tokens sampled before it; not on the other rows, the slot or the thread count.
// Thread safety: used by the engine thread only; Run() spreads rows over the pool.
#ifndef PAGEMILL_CC_SAMPLING_SAMPLER_H_
#define PAGEMILL_CC_SAMPLING_SAMPLER_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cc/base/status.h"
#include "cc/device/capabilities.h"
#include "cc/device/thread_pool.h"
#include "cc/ops/row_maxima.h"
#include "cc/ops/sample/row_passes.h"
#include "cc/step/request.h"
#include "cc/step/step_result.h"

namespace pagemill::sampling {

struct SamplerOptions {
  int32_t max_num_seqs = 128;              // slots
  int32_t vocab_size = 0;                  // columns of a row of logits
  device::Capabilities capabilities = {};  // of the CPU: which instructions rows are read with
};

// One row of logits. Either a token is sampled from it, or it scores a prompt token that is known.
struct LogitsRow {
  step::RequestIndex index;
  const float* logits = nullptr;  // [vocab_size], not modified
  // Of the logits, which are then null: for rows of slots that need no more.
  const ops::RowMaximum* maximum = nullptr;
  int32_t prompt_token_id = -1;  // >= 0: report this token's logprobs, sample nothing
};

struct RowOutput {
  int32_t token_id = -1;  // sampled, or the row's prompt_token_id
  bool has_logprobs = false;
  step::TokenLogprobs logprobs;  // where the request asked for them
  Status failure;                // not OK: the logits are not numbers
};

class Sampler {
 public:
  Sampler(const SamplerOptions& options, device::ThreadPool* pool);
  ~Sampler();
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;

  // The slot begins to hold `request`, of which `output_token_ids` exist already (resumed
  // requests).
  void Start(step::RequestIndex index, std::shared_ptr<const step::Request> request,
             std::span<const int32_t> output_token_ids);
  void Release(step::RequestIndex index);

  // Is the next token of this slot the one with the largest logit, and nothing else wanted of them?
  // Greedy, no log probabilities, and nothing that changes logits before they are compared. True of
  // later steps only if it is asked again: min_tokens may be reached meanwhile.
  bool NeedsOnlyMaximum(step::RequestIndex index) const;

  // Handles every row; rows of one request are in position order. Sampled tokens count as outputs
  // at once.
  void Run(std::span<const LogitsRow> rows, std::span<RowOutput> outputs);

  // Aborts when state of a slot contradicts itself. O(slots).
  void CheckIntegrity() const;

 private:
  struct Slot;
  struct Scratch;
  std::span<const float> LogitsOf(const LogitsRow& row) const;
  ops::MaxEntry MaximumOf(const LogitsRow& row) const;
  void RunRow(const LogitsRow& row, Scratch& scratch, RowOutput& output);

  SamplerOptions options_;
  device::ThreadPool* pool_;
  const ops::RowPasses& passes_;
  std::vector<Slot> slots_;
  std::vector<Scratch> scratch_;  // one per worker of the pool
};

}  // namespace pagemill::sampling

#endif  // PAGEMILL_CC_SAMPLING_SAMPLER_H_
