// File: cc/step/fake_model.h
// A pseudo-model that runs StepPlans without weights, for tests of everything that makes or carries
// plans. It keeps a fake KV store that only plans write: for each slot of each block a token, and a
// fingerprint of the cache salt and all tokens up to it, made from the slot before it as keys and
// values are made from the context. The next token of a request is a hash of its whole context,
// read back through its block table: a wrong block table, a lost or twice used block, a stale
// prefix or a skipped token gives other tokens than Continue() does, or fingerprints that do not
// fit, an error.
//
// Placeholders stand for the token sampled last, at the place that it really has, and for drafts
// that the model proposed last; one in four times it has only half of them. Draft tokens are
// verified: they are run, and those up to the first one that it would not have sampled itself are
// accepted.
//
// It also checks each plan against the contract of step_plan.h and the limits.
//
//   FakeModel model({.num_blocks = 64, .block_size = 4, .max_num_seqs = 8});
//   PAGEMILL_ASSIGN_OR_RETURN(StepResult result, model.Run(plan));
//   ... the tokens of a greedy request equal FakeModel::Continue(prompt, n, vocab_size)
//
// Thread safety: none, but its pages may be copied while it runs, as page_store.h says.
#ifndef PAGEMILL_CC_STEP_FAKE_MODEL_H_
#define PAGEMILL_CC_STEP_FAKE_MODEL_H_

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cc/base/status.h"
#include "cc/step/page_store.h"
#include "cc/step/step_plan.h"
#include "cc/step/step_result.h"

namespace pagemill::step {

class FakeModel final : public PageStore {
 public:
  struct Options {
    int32_t num_blocks = 64;  // the null block included
    int32_t block_size = 4;   // tokens
    int32_t max_num_seqs = 8;
    int32_t vocab_size = 97;
    int32_t max_num_tokens = 32;
    int32_t max_num_logits_rows = 32;
    bool chunked_prefill = true;  // false: a prompt must come in one step
    // Proposes so many tokens with every token that it samples: the right ones, except one in
    // three.
    int32_t max_draft_tokens = 0;
    int32_t max_encoder_tokens = 0;    // embeddings made in one step; 0 = no media
    int32_t encoder_cache_tokens = 0;  // embeddings kept
    bool chunked_media_input = true;   // false: a step must not end inside an item
    int32_t max_adapters = 0;          // different ones in the slots
    bool token_rows = false;           // pools each token by itself
  };
  static constexpr int32_t kPooledSize = 4;
  static constexpr int32_t kRoutedExpertsPerToken = 6;

  explicit FakeModel(const Options& options);

  // kInternal, with a sentence, where the plan breaks the contract; the model is then unusable.
  StatusOr<StepResult> Run(const StepPlan& plan);

  // The plan as Run() runs it now: with tokens instead of placeholders, and their places.
  StatusOr<StepPlan> Resolve(const StepPlan& plan) const;

  // Forgets all requests and everything computed.
  void Restart();
  // Takes note of a step that failed before it did anything: its requests end, their slots will be
  // released by a later plan.
  void Skip(const StepPlan& plan);

  // A page: 12 bytes a slot of the block, the same on every machine; every group has the same ones.
  size_t page_bytes(GroupId group) const override;
  Status Read(GroupId group, BlockId block, std::span<std::byte> to) const override;
  Status Write(GroupId group, BlockId block, std::span<const std::byte> from) override;

  // The tokens that the model must give after `prompt`.
  static std::vector<int32_t> Continue(std::span<const int32_t> prompt, size_t count,
                                       int32_t vocab_size);
  // The pooled vector that it must give for `prompt`.
  static std::vector<float> Pool(std::span<const int32_t> prompt);
  // The vectors of its tokens from `first` on, one after the other, with Options::token_rows.
  static std::vector<float> TokenRows(std::span<const int32_t> prompt, size_t first = 0);
  // The experts that it must choose for each of the first `count` tokens of `context`.
  static std::vector<uint16_t> RoutedExperts(std::span<const int32_t> context, size_t count);
  // Its logprob entry for `token_id` after `context`, with `num_top` alternatives.
  static TokenLogprobs Logprobs(std::span<const int32_t> context, int32_t token_id,
                                int32_t num_top);

 private:
  struct Entry {
    int32_t token = -1;  // never written
    uint64_t fingerprint = 0;
  };
  struct Slot {
    std::shared_ptr<const Request> request;  // null: free
    std::vector<BlockId> blocks;
    int32_t num_computed_tokens = 0;
    int32_t num_known_tokens = 0;   // at `start` and after each sampled token
    int32_t last_sampled = -1;      // what a placeholder stands for
    std::vector<int32_t> proposed;  // behind it
  };

  Entry* At(const Slot& slot, int32_t position);
  // The fingerprint of `token` at `position`, from what the KV store holds before it.
  uint64_t Fingerprint(const Slot& slot, int32_t position, int32_t token);
  // What keys and values depend on besides the tokens: salt and adapter; the item whose placeholder
  // stands at a position (0 = none).
  static uint64_t ContentBefore(const Request& request);
  static uint64_t MediaAt(const Request& request, int32_t position);
  Status CheckTotals(const StepPlan& plan) const;
  Status CheckCommonPrefix(const StepPlan& plan) const;
  Status CheckAdapters() const;
  Status Encode(const StepPlan& plan);
  Status CheckMedia(const ScheduledRequest& entry, const Slot& slot) const;
  Status Start(const ScheduledRequest& entry, Slot* slot);
  Status Append(const ScheduledRequest& entry, Slot* slot);
  Status WriteTokens(const ScheduledRequest& entry, Slot* slot);
  Status ReadContext(const Slot& slot, std::vector<int32_t>* context);
  Status ResolveEntry(ScheduledRequest* entry) const;
  // Accepts drafts and samples behind them, in `context`; the slot stands behind what is accepted.
  void Sample(const ScheduledRequest& entry, std::vector<int32_t> context, Slot* slot,
              RequestResult* result) const;
  void Propose(std::vector<int32_t> context, std::vector<int32_t>* drafts) const;
  Status Answer(const ScheduledRequest& entry, Slot* slot, RequestResult* result);

  const Options options_;
  std::vector<Slot> slots_;
  std::vector<Entry> kv_;                   // [num_blocks * block_size]
  std::map<std::string, int32_t> encoded_;  // content id -> embeddings
};

}  // namespace pagemill::step

#endif  // PAGEMILL_CC_STEP_FAKE_MODEL_H_
