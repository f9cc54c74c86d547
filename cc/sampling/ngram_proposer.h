// File: cc/sampling/ngram_proposer.h
// Drafts from the request's own text: the tokens that followed the last tokens at an earlier
// occurrence. Good for answers that repeat parts of their prompt (editing, summaries, extraction);
// needs no model.
//
//   NgramProposer proposer({.max_num_seqs = 128});
//   proposer.Start(index, tokens);                   // "a b c d e a b c"
//   proposer.Propose(index, /*max_tokens=*/3, &drafts);  // "d e a"
//
// Uses the longest suffix of min_n to max_n tokens that occurred before, at its most recent
// occurrence. The proposal continues as if it were part of the text, so after "a b a b a b" with
// min_n = 2 it is "a b a b ..." of any length.
//
// Costs O(max_n) operations amortized per observed token (50 to 250 ns with the defaults on one
// thread of an AMD EPYC, Zen 5), and O(max_n + max_tokens) per proposal (40 ns): each n has a hash
// table from n-grams to the position after their most recent occurrence; entries are compared with
// the text, so hash collisions do not cause wrong proposals. Memory: at most 8 + 11 (max_n - min_n
// + 1) bytes per token, 74 with the defaults, and 256 per table.
#ifndef PAGEMILL_CC_SAMPLING_NGRAM_PROPOSER_H_
#define PAGEMILL_CC_SAMPLING_NGRAM_PROPOSER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cc/base/status.h"
#include "cc/sampling/draft_proposer.h"
#include "cc/step/request.h"

namespace pagemill::sampling {

struct NgramProposerOptions {
  int32_t max_num_seqs = 128;  // slots
  // Minimum and maximum length, in tokens, of the suffix to search for (at most 16). Rewriting 60
  // source files as their next revision, with 8 drafts at a tenth of a step each, makes 3.3 tokens
  // in the time of a step with these, 2.9 with n = 3 alone; a larger max_n adds 2 %, and min_n = 2
  // nothing.
  int32_t min_n = 3;
  int32_t max_n = 8;

  // kInvalidArgument names the field, its value and its range.
  Status Validate() const;
};

class NgramProposer final : public DraftProposer {
 public:
  // The options must be valid.
  explicit NgramProposer(const NgramProposerOptions& options);

  void Start(step::RequestIndex index, std::span<const int32_t> tokens) override;
  void Observe(step::RequestIndex index, std::span<const int32_t> tokens) override;
  void Propose(step::RequestIndex index, int32_t max_tokens, std::vector<int32_t>* drafts) override;

  // Memory of the slot's text and tables.
  size_t bytes(step::RequestIndex index) const;
  // Aborts if a table is inconsistent with the text. O(tokens).
  void CheckIntegrity() const;

 private:
  // The n-grams of a text, for one n: open addressing with linear probing. An entry is the position
  // after the most recent occurrence; 0 = free (an n-gram ends at 1 or later).
  struct Table {
    std::vector<int32_t> entries;  // a power of two
    size_t used = 0;
  };
  struct Slot {
    std::vector<int32_t> tokens;
    std::vector<Table> tables;  // for min_n, min_n + 1, ...
  };
  void Append(Slot* slot, int32_t token) const;
  void Grow(const std::vector<int32_t>& tokens, int32_t n, Table* table) const;
  // The position after the most recent occurrence of the longest suffix that occurred before; 0 if
  // none did.
  int32_t FindSuffix(const Slot& slot) const;

  const NgramProposerOptions options_;
  std::vector<Slot> slots_;
};

}  // namespace pagemill::sampling

#endif  // PAGEMILL_CC_SAMPLING_NGRAM_PROPOSER_H_
