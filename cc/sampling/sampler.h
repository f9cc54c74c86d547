// File: cc/sampling/sampler.h
// Samples tokens from logits for every request of a step. Owns the sampling state of requests
// (which tokens occurred, how many were sampled); docs/sampling.md has the order of operations.
//
//   Sampler sampler({.max_num_seqs = 128, .vocab_size = 49152}, &pool);
//   sampler.Start(index, request, {});
//   std::vector<LogitsRow> rows = {{.index = index, .logits = row}};
//   std::vector<RowOutput> out(rows.size());
//   sampler.Run(rows, out);
//
// Drafts. A request whose step verifies k drafts has k + 1 consecutive rows: row i is the row after
// draft i - 1 and names draft i; the last names none.
//
//   rows = {{.index = index, .logits = row0, .draft_token_id = 17},
//           {.index = index, .logits = row1, .draft_token_id = 4},
//           {.index = index, .logits = row2}};
//
// Each row is sampled as if it were the only one, with the state after the preceding tokens (so
// penalties include accepted drafts); the draft is accepted if the sampled token equals it. Rows
// after a rejected draft are not sampled, and their outputs have no token. So the tokens of a
// request are those of its outputs before the first without one: the accepted drafts and one more
// token. Without `draft_probabilities` they equal the tokens that the request gets without drafts;
// with them, they have the same distribution (rejection_sampler.h).
//
// The caller handles stops: a draft that is an end-of-sequence or stop token is accepted like any
// other, and later tokens may be sampled. The caller drops them and releases the slot, whose state
// includes them.
//
// Masks. Tokens that a row's mask excludes are never sampled, regardless of other parameters. If a
// mask allows no token with a finite logit, the request fails (kInvalidArgument). Log probabilities
// are those of the logits before the mask, unless SamplingParams::logprobs_mode says otherwise. A
// request's logits processor changes logits before the mask, on the thread that samples its rows.
//
// Watermarks. The first token behind each context of a request's output is drawn by the engine's
// watermark instead of the request's seed (watermark/watermark.h), also if a draft is verified,
// whose distribution is ignored then. Greedy requests have no mark.
//
// Deterministic: a token depends on the row of logits, its mask, the request's parameters and seed,
// the tokens sampled before it and, with draft_probabilities, on the draft; not on the other rows,
// the slot, the step or the thread count.
// Thread safety: used by the engine thread only; Run() spreads requests over the pool.
#ifndef PAGEMILL_CC_SAMPLING_SAMPLER_H_
#define PAGEMILL_CC_SAMPLING_SAMPLER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cc/base/status.h"
#include "cc/device/capabilities.h"
#include "cc/device/thread_pool.h"
#include "cc/ops/row_maxima.h"
#include "cc/ops/sample/row_draw.h"
#include "cc/ops/sample/row_passes.h"
#include "cc/ops/sample/sample.h"
#include "cc/ops/sample/token_scores.h"
#include "cc/sampling/step_adjustments.h"
#include "cc/sampling/watermark/watermark.h"
#include "cc/step/request.h"
#include "cc/step/step_result.h"

namespace pagemill::sampling {

// True if an executor that scores tokens gives the log probabilities that a request wants, of its
// prompt's tokens or of its sampled ones: few of the most likely, from unmodified logits.
bool ScoresSuffice(const step::SamplingParams& params, bool of_prompt);

// Not OK if the logits of a row that an executor scored are not finite.
Status CheckScored(const ops::RowMaximum& found, const ops::TokenScores& scores);

// Log probabilities that a request wants, of a token that an executor scored.
step::TokenLogprobs LogprobsOf(int32_t token_id, const ops::TokenScores& scores, int32_t wanted,
                               int32_t vocab_size);

// A request's parameters for drawing from a row of logits, without the random number.
ops::DrawParams DrawParamsOf(const step::SamplingParams& params);

// Likewise with the random number of the token after `num_outputs` others.
ops::RowDraw RowDrawOf(const step::SamplingParams& params, int32_t num_outputs);

struct SamplerOptions {
  int32_t max_num_seqs = 128;              // slots
  int32_t vocab_size = 0;                  // columns of a row of logits
  device::Capabilities capabilities = {};  // of the CPU: selects the kernels that read rows
  // Of requests that draw tokens, unless they say otherwise (SamplingParams::watermarking).
  std::optional<Watermark> watermark = std::nullopt;
};

// One row of logits. Either a token is sampled from it, or it scores a known prompt token.
struct LogitsRow {
  step::RequestIndex index;
  const float* logits = nullptr;  // [vocab_size], not modified
  int32_t prompt_token_id = -1;  // >= 0: report this token's logprobs, sample nothing
  // >= 0: the draft to verify; the next row of the request continues it.
  int32_t draft_token_id = -1;
  // The distribution q that the draft was drawn from with UniformOf(..., Purpose::kDraft):
  // [vocab_size], sums to 1. Null if the draft was not drawn at random, for example by n-grams or
  // as the most likely token of a draft model. Ignored for greedy requests.
  const float* draft_probabilities = nullptr;
  // cc/step/token_mask.h; empty = all tokens are allowed. Only for slots that were started as
  // masked.
  std::span<const uint32_t> mask = {};
};

// A row of a step from which an executor chooses a token.
struct AdjustedRow {
  int32_t row = 0;          // of the step
  int32_t num_outputs = 0;  // of the request, in front of the token
  int32_t input = 0;        // index of the row's own token among those of the step
  int32_t num_drafts = 0;   // up to the row's own token, which is the last of them if there are any
};

struct RowOutput {
  int32_t token_id = -1;  // sampled, or the row's prompt_token_id; -1 after a rejected draft
  bool has_logprobs = false;
  step::TokenLogprobs logprobs;  // if requested
  Status failure;  // invalid logits, of the model or a processor, or no token is allowed
};

class Sampler {
 public:
  Sampler(const SamplerOptions& options, device::ThreadPool* pool);
  ~Sampler();
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;

  // Assigns `request` to the slot; its first outputs, `output_token_ids`, exist already if it was
  // resumed. `masked`: rows of the request may have masks, because it has a TokenMatcher.
  void Start(step::RequestIndex index, std::shared_ptr<const step::Request> request,
             std::span<const int32_t> output_token_ids, bool masked = false);
  void Release(step::RequestIndex index);

  // True if the next token of this slot depends only on a row of logits, its mask and RowDrawOf(),
  // and nothing else is needed of the row: no log probabilities, and only a mask changes logits.
  // Once true it stays true, so it also holds for rows after drafts; it may become true when
  // min_tokens are reached.
  bool NeedsOnlyToken(step::RequestIndex index) const;

  // As NeedsOnlyToken(), for an executor that changes logits, too, as Adjust() says, and gives log
  // probabilities (LogprobsOf()).
  bool NeedsOnlyAdjustedToken(step::RequestIndex index) const;

  // True if something else than a mask changes the next row of this slot. Once false it stays so.
  bool ChangesLogits(step::RequestIndex index) const;

  // Adds to `to` what changes a row of a slot apart from its mask: min_tokens, biases, penalties.
  // Called for the rows in the order of their steps, once for each: that without drafts counts what
  // the executor lacks.
  void Adjust(step::RequestIndex index, const AdjustedRow& row, StepAdjustments* to);

  // The next output of a slot is found.column, which an executor found: the largest logit or a
  // drawn one (RowDrawOf()), among the tokens that the row's mask allows, of adjusted logits. Not
  // OK: there is none, as RowOutput::failure. Aborts without NeedsOnlyAdjustedToken(). O(1).
  Status TakeFound(step::RequestIndex index, const ops::RowMaximum& found);

  // Processes every row; rows of one request are consecutive, in position order. Sampled tokens
  // count as outputs at once. `outputs` must be default-constructed; those after a rejected draft
  // or a failed row are not changed.
  void Run(std::span<const LogitsRow> rows, std::span<RowOutput> outputs);

  // Aborts if the state of a slot is inconsistent. O(slots).
  void CheckIntegrity() const;

 private:
  struct Slot;
  struct Scratch;
  struct Processed;
  std::span<const float> LogitsOf(const LogitsRow& row) const;
  void AddOutput(Slot& slot, int32_t token_id);
  StatusOr<std::span<const float>> CallProcessor(const LogitsRow& row, Scratch& scratch) const;
  StatusOr<Processed> Process(const LogitsRow& row, Scratch& scratch) const;
  int32_t Draw(const LogitsRow& row, const Processed& processed, Scratch& scratch) const;
  Processed Keep(const step::SamplingParams& params, const Processed& processed,
                 Scratch& scratch) const;
  step::TokenLogprobs Report(const LogitsRow& row, const Processed& reported, int32_t token_id,
                             Scratch& scratch) const;
  bool RunRow(const LogitsRow& row, Scratch& scratch, RowOutput& output);

  SamplerOptions options_;
  device::ThreadPool* pool_;
  const ops::RowPasses& passes_;
  std::vector<Slot> slots_;
  std::vector<Scratch> scratch_;  // one per worker of the pool
};

}  // namespace pagemill::sampling

#endif  // PAGEMILL_CC_SAMPLING_SAMPLER_H_
