// File: cc/runner/mask_filler.h
// Keeps the token matchers of the requests in slots, and fills the masks of a step on a thread of
// its own, while the engine's thread runs the forward pass.
//
//   MaskFiller masks({.max_num_seqs = 128, .vocab_size = limits.vocab_size});
//   masks.Start(index, *request, {});          // a request with a matcher
//   masks.BeginStep();
//   if (masks.Holds(index)) masks.AddRows(index, drafts);
//   masks.Fill();                              // returns at once
//   ... the forward pass ...
//   masks.Wait();
//   if (masks.status(index).ok()) sample(masks.row(0), ...);
//   drafts = masks.ForcedBehind(index, token); // what must follow, known while the pass ran
//   masks.Observe(index, sampled_token_ids);   // accepted by the matcher when the next step fills
//
// Matchers are created, called and advanced by that thread only. It starts with the first step that
// has a mask to fill; without one no call here takes a lock or allocates.
//
// If a matcher cannot be created, fails, or refuses a token that its mask allowed, its own request
// fails: status() says why, and its masks must not be used.
//
// Memory: one mask for each row of the largest step so far. Thread safety: used by the engine
// thread only.
#ifndef PAGEMILL_CC_RUNNER_MASK_FILLER_H_
#define PAGEMILL_CC_RUNNER_MASK_FILLER_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "cc/base/status.h"
#include "cc/sampling/draft_masks.h"
#include "cc/step/request.h"
#include "cc/step/token_matcher.h"

namespace pagemill::runner {

struct MaskFillerOptions {
  int32_t max_num_seqs = 128;  // slots
  int32_t vocab_size = 0;
  int32_t max_forced_tokens = 0;  // of one request in one step, behind the one that it samples
};

class MaskFiller {
 public:
  explicit MaskFiller(const MaskFillerOptions& options);
  ~MaskFiller();
  MaskFiller(const MaskFiller&) = delete;
  MaskFiller& operator=(const MaskFiller&) = delete;

  // The slot begins to hold `request`, whose `output_token_ids` exist already. Without a matcher it
  // holds nothing here.
  void Start(step::RequestIndex index, const step::Request& request,
             std::span<const int32_t> output_token_ids);
  void Release(step::RequestIndex index);
  // True if the slot holds a request with a matcher.
  bool Holds(step::RequestIndex index) const { return slot(index).held; }
  // These tokens were sampled for a slot that Holds().
  void Observe(step::RequestIndex index, std::span<const int32_t> token_ids);

  void BeginStep() { jobs_.clear(), num_rows_ = 0; }
  // A row for the token before each draft and one after the last, of a slot that Holds(). Rows are
  // numbered in the order of these calls. `drafts` stay until Wait().
  void AddRows(step::RequestIndex index, std::span<const int32_t> drafts);
  // Starts to fill the rows that were added; until Wait() returns, no other method is called.
  void Fill();
  void Wait();

  // Words of the mask (cc/step/token_mask.h). Rows behind a draft that the matcher refuses have no
  // meaning: the mask before that draft excludes it.
  std::span<const uint32_t> row(size_t i) const { return {&masks_[i * num_words_], num_words_}; }
  // Masks of all rows of the step, one after the other.
  std::span<const uint32_t> rows() const { return {masks_.data(), num_rows_ * num_words_}; }
  const Status& status(step::RequestIndex index) const { return slot(index).status; }

  // The tokens that must follow `token_id`, which this step sampled behind all drafts of a slot
  // that Holds(). Empty if there is a choice; valid until the next Fill().
  std::span<const int32_t> ForcedBehind(step::RequestIndex index, int32_t token_id) const;

  bool has_thread() const { return thread_.joinable(); }

 private:
  struct Slot {
    bool held = false;
    step::TokenMatcherFactory new_matcher;  // until it was called
    std::unique_ptr<step::TokenMatcher> matcher;
    std::vector<int32_t> observed;  // and not accepted by the matcher yet
    sampling::ForcedTokens forced;  // of this step
    Status status;
  };
  struct Job {
    step::RequestIndex index;
    std::span<const int32_t> drafts;
    size_t first_row = 0;
  };
  const Slot& slot(step::RequestIndex index) const { return slots_[index.value()]; }
  void Run();
  Status RunJob(const Job& job);

  const size_t num_words_;   // of a mask
  const size_t max_forced_;  // tokens, the sampled one included
  std::vector<Slot> slots_;
  std::vector<Job> jobs_;  // of this step
  size_t num_rows_ = 0;    // of this step
  std::vector<uint32_t> masks_;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool filling_ = false;  // guarded by mutex_; while true, the thread owns slots, jobs and masks
  bool closing_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace pagemill::runner

#endif  // PAGEMILL_CC_RUNNER_MASK_FILLER_H_
