// File: cc/sampling/suffix_proposer.h
// Drafts from texts that exist: what followed the end of the request's text earlier in it, or in
// the outputs of requests before it. Good for work that repeats itself from request to request, as
// that of agents does; needs no model.
//
//   SuffixProposer proposer({.max_num_seqs = 128});
//   proposer.Start(index, tokens);
//   proposer.Share(index, cache_salt);
//   proposer.Propose(index, /*max_tokens=*/16, &drafts);
//
// The places with the longest match, of at most max_match tokens, vote on each next token; those
// that are outvoted leave. A draft's probability is the share of votes, times that of the draft
// before it; drafts end below min_probability. A longer match is worth more drafts: max_factor for
// each of its tokens.
//
// As in Oliaro et al., "SuffixDecoding: Extreme Speculative Decoding for Emerging AI Applications",
// 2024, with an index of short runs in place of their trees. A proposal looks at
// TextIndex::kMostPlaces places of the own text and twice as many of others. What is kept of a
// request is its output, however it ended, behind the end of its prompt; adapters do not divide it.
#ifndef PAGEMILL_CC_SAMPLING_SUFFIX_PROPOSER_H_
#define PAGEMILL_CC_SAMPLING_SUFFIX_PROPOSER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cc/base/status.h"
#include "cc/sampling/draft_proposer.h"
#include "cc/sampling/shared_texts.h"
#include "cc/sampling/text_index.h"
#include "cc/step/request.h"

namespace pagemill::sampling {

struct SuffixProposerOptions {
  int32_t max_num_seqs = 128;        // slots
  int32_t max_match = 24;            // tokens; at least TextIndex::kLeastMatch
  double max_factor = 1.0;           // drafts for each token of the match
  double min_probability = 0.1;      // of a draft, by the votes
  int32_t max_cached_texts = 10000;  // outputs of earlier requests; 0: the own text alone

  // kInvalidArgument names the field, its value and its range.
  Status Validate() const;
};

class SuffixProposer final : public DraftProposer {
 public:
  // The options must be valid.
  explicit SuffixProposer(const SuffixProposerOptions& options);

  // The output of the slot's last request is kept for others if it may be shared.
  void Start(step::RequestIndex index, std::span<const int32_t> tokens) override;
  void Share(step::RequestIndex index, std::string_view cache_salt) override;
  void Observe(step::RequestIndex index, std::span<const int32_t> tokens) override;
  void Propose(step::RequestIndex index, int32_t max_tokens, std::vector<int32_t>* drafts) override;

 private:
  struct Slot {
    TextIndex text;
    size_t num_given = 0;             // tokens of Start()
    std::optional<std::string> salt;  // if it may be shared
  };
  // A place in a text whose next token is a vote.
  struct Voter {
    std::span<const int32_t> text;
    size_t next = 0;
    bool own = false;  // its text continues with the drafts
  };
  void FindVoters(const Slot& slot);
  std::pair<int32_t, size_t> MostVoted();
  // The token that most voters have next, and its share of them; voters of others leave.
  std::optional<std::pair<int32_t, double>> Vote(std::span<const int32_t> drafts);

  const SuffixProposerOptions options_;
  std::vector<Slot> slots_;
  SharedTexts shared_;
  // Scratch.
  std::vector<size_t> places_;
  std::vector<Voter> voters_;
  size_t match_ = 0;  // of the voters
  std::vector<int32_t> votes_;
  std::vector<std::pair<int32_t, size_t>> sorted_;  // votes and their places
};

}  // namespace pagemill::sampling

#endif  // PAGEMILL_CC_SAMPLING_SUFFIX_PROPOSER_H_
