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
// Drafts. A request whose step verifies k drafts has k + 1 rows, one after the other: row i is the
// row behind draft i - 1 and names draft i, and the last names none.
//
//   rows = {{.index = index, .logits = row0, .draft_token_id = 17},
//           {.index = index, .logits = row1, .draft_token_id = 4},
//           {.index = index, .logits = row2}};
//
// A token is sampled from each row as if it were the only one, with the state that the tokens
// before it leave (so penalties see accepted drafts); the draft is accepted if the token equals it.
// Rows after a rejected draft continue a text that does not exist: nothing is sampled from them,
// and their outputs have no token. So the tokens of a request are those of its outputs up to the
// first without one: the accepted drafts and one token more. Without `draft_probabilities` they
// equal the tokens that the request gets without drafts; with them, they have the same distribution
// (rejection_sampler.h).
//
// Stops are the caller's: a draft that is an end-of-sequence or stop token is accepted like any
// other, and tokens behind it may be sampled. The caller drops them and releases the slot, whose
// state counts them.
//
// Masks. Tokens that a row's mask does not allow are never sampled, whatever the other parameters.
// A mask that allows no token with a finite logit is a failure of the request (kInvalidArgument).
// Log probabilities are those of the logits before the mask.
//
// Deterministic: a token depends on the row of logits, its mask, the request's parameters and seed,
// the tokens sampled before it and, with draft_probabilities, on the draft; not on the other rows,
// the slot, the step or the thread count.
// Thread safety: used by the engine thread only; Run() spreads requests over the pool.
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
#include "cc/ops/sample/row_draw.h"
#include "cc/ops/sample/row_passes.h"
#include "cc/ops/sample/sample.h"
#include "cc/step/request.h"
#include "cc/step/step_result.h"

namespace pagemill::sampling {

// How a request draws from a row of logits; without the random number.
ops::DrawParams DrawParamsOf(const step::SamplingParams& params);

// How it draws the token behind `num_outputs` others.
ops::RowDraw RowDrawOf(const step::SamplingParams& params, int32_t num_outputs);

struct SamplerOptions {
  int32_t max_num_seqs = 128;              // slots
  int32_t vocab_size = 0;                  // columns of a row of logits
  device::Capabilities capabilities = {};  // of the CPU: which instructions rows are read with
};

// One row of logits. Either a token is sampled from it, or it scores a prompt token that is known.
struct LogitsRow {
  step::RequestIndex index;
  const float* logits = nullptr;  // [vocab_size], not modified
  // The token that an executor has found instead of logits, which are then null: the largest of
  // them, or one that it has drawn (RowDrawOf()). For rows of slots that need no more; aborts for
  // others.
  const ops::RowMaximum* found = nullptr;
  int32_t prompt_token_id = -1;  // >= 0: report this token's logprobs, sample nothing
  // >= 0: the draft to verify, which the next row of the request continues.
  int32_t draft_token_id = -1;
  // The distribution that the draft was drawn from, with UniformOf(..., Purpose::kDraft):
  // [vocab_size], sums to 1. Null if the draft was not drawn at random, for example an n-gram's or
  // the most likely token of a draft model. Ignored for greedy requests.
  const float* draft_probabilities = nullptr;
  // cc/step/token_mask.h; empty = all tokens are allowed. Only for slots that were started as
  // masked.
  std::span<const uint32_t> mask = {};
};

struct RowOutput {
  int32_t token_id = -1;  // sampled, or the row's prompt_token_id; -1 behind a rejected draft
  bool has_logprobs = false;
  step::TokenLogprobs logprobs;  // if the request asked for them
  Status failure;  // not OK: the logits are not numbers, or the mask allows none of them
};

class Sampler {
 public:
  Sampler(const SamplerOptions& options, device::ThreadPool* pool);
  ~Sampler();
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;

  // The slot begins to hold `request`, of which `output_token_ids` exist already (resumed
  // requests). `masked`: rows of the request may have masks, as it has a TokenMatcher.
  void Start(step::RequestIndex index, std::shared_ptr<const step::Request> request,
             std::span<const int32_t> output_token_ids, bool masked = false);
  void Release(step::RequestIndex index);

  // Does the next token of this slot follow from a row of logits and RowDrawOf() alone, and is
  // nothing else wanted of them? Not masked, no log probabilities, and nothing that changes logits
  // before they are compared. Once true it stays true, so it holds for rows behind drafts as well;
  // it may become true, when min_tokens are reached.
  bool NeedsOnlyToken(step::RequestIndex index) const;

  // Handles every row; rows of one request are neighbours in position order. Sampled tokens count
  // as outputs at once. `outputs` are as RowOutput() makes them; those behind a rejected draft or a
  // row that fails stay so.
  void Run(std::span<const LogitsRow> rows, std::span<RowOutput> outputs);

  // Aborts when state of a slot contradicts itself. O(slots).
  void CheckIntegrity() const;

 private:
  struct Slot;
  struct Scratch;
  struct Processed;
  std::span<const float> LogitsOf(const LogitsRow& row) const;
  ops::MaxEntry MaximumOf(const LogitsRow& row) const;
  Processed Process(const LogitsRow& row, Scratch& scratch) const;
  int32_t Draw(const LogitsRow& row, const Processed& processed, Scratch& scratch) const;
  bool RunRow(const LogitsRow& row, Scratch& scratch, RowOutput& output);

  SamplerOptions options_;
  device::ThreadPool* pool_;
  const ops::RowPasses& passes_;
  std::vector<Slot> slots_;
  std::vector<Scratch> scratch_;  // one per worker of the pool
};

}  // namespace pagemill::sampling

#endif  // PAGEMILL_CC_SAMPLING_SAMPLER_H_
