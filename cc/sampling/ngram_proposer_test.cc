#include "cc/sampling/ngram_proposer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace pagemill::sampling {
namespace {

using step::RequestIndex;
using Tokens = std::vector<int32_t>;

// Searches the whole text, longest suffix first, most recent occurrence first.
Tokens BruteForce(const Tokens& text, int32_t min_n, int32_t max_n, int32_t max_tokens) {
  const auto size = static_cast<int32_t>(text.size());
  for (int32_t n = std::min(max_n, size); n >= min_n; --n) {
    for (int32_t end = size - 1; end >= n; --end) {
      if (!std::equal(text.end() - n, text.end(), text.begin() + end - n)) continue;
      Tokens longer = text;
      for (int32_t i = 0; i < max_tokens; ++i) longer.push_back(longer[end + i]);
      return Tokens(longer.begin() + size, longer.end());
    }
  }
  return {};
}

Tokens Proposed(NgramProposer& proposer, int32_t slot, int32_t max_tokens) {
  Tokens drafts = {-7};
  proposer.Propose(RequestIndex(slot), max_tokens, &drafts);
  return drafts;
}

TEST(NgramProposerTest, ProposesWhatFollowed) {
  NgramProposer proposer({.max_num_seqs = 2, .min_n = 2, .max_n = 3});
  proposer.Start(RequestIndex(1), Tokens{1, 2, 3, 4, 5, 1, 2, 3});
  EXPECT_EQ(Proposed(proposer, 1, 3), (Tokens{4, 5, 1}));
  EXPECT_EQ(Proposed(proposer, 1, 0), Tokens{});
  proposer.Observe(RequestIndex(1), Tokens{4, 9});
  EXPECT_EQ(Proposed(proposer, 1, 3), Tokens{}) << "the suffix is new";
  proposer.Observe(RequestIndex(1), Tokens{2, 3});
  EXPECT_EQ(Proposed(proposer, 1, 2), (Tokens{4, 9})) << "the most recent occurrence";
}

TEST(NgramProposerTest, TheLongestSuffixDecides) {
  NgramProposer proposer({.min_n = 1, .max_n = 2});
  proposer.Start(RequestIndex(0), Tokens{1, 2, 3, 7, 2, 4, 1, 2});
  EXPECT_EQ(Proposed(proposer, 0, 1), Tokens{3}) << "1 2, though 2 alone occurred later";
}

TEST(NgramProposerTest, APeriodContinues) {
  NgramProposer proposer({.min_n = 2, .max_n = 4});
  proposer.Start(RequestIndex(0), Tokens{5, 6, 5, 6, 5, 6});
  EXPECT_EQ(Proposed(proposer, 0, 5), (Tokens{5, 6, 5, 6, 5}));
}

TEST(NgramProposerTest, EqualsBruteForceOverAnyCalls) {
  std::mt19937 rng(1);
  int proposals = 0;
  for (int round = 0; round < 40; ++round) {
    const auto min_n = static_cast<int32_t>(1 + rng() % 3);
    const auto max_n = min_n + static_cast<int32_t>(rng() % 3);
    const uint32_t vocab = round % 2 == 0 ? 3 : 12;
    NgramProposer proposer({.max_num_seqs = 3, .min_n = min_n, .max_n = max_n});
    std::vector<Tokens> texts(3);
    for (int call = 0; call < 60; ++call) {
      const auto slot = static_cast<int32_t>(rng() % 3);
      const RequestIndex index(slot);
      Tokens& text = texts[slot];
      Tokens tokens(rng() % 9);
      for (int32_t& token : tokens) token = static_cast<int32_t>(rng() % vocab);
      if (text.size() > 20 && rng() % 3 == 0) {  // a part of the text again
        const size_t begin = rng() % (text.size() - 10);
        tokens.assign(text.begin() + begin, text.begin() + begin + 6);
      }
      if (text.empty() || rng() % 20 == 0) {
        proposer.Start(index, tokens);
        text = tokens;
      } else {
        proposer.Observe(index, tokens);
        text.insert(text.end(), tokens.begin(), tokens.end());
      }
      proposer.CheckIntegrity();
      const auto max_tokens = static_cast<int32_t>(rng() % 8);
      const Tokens drafts = Proposed(proposer, slot, max_tokens);
      ASSERT_EQ(drafts, BruteForce(text, min_n, max_n, max_tokens)) << round << " " << call;
      proposals += drafts.empty() ? 0 : 1;
    }
  }
  EXPECT_GT(proposals, 500);
}

TEST(NgramProposerTest, MemoryIsWithinTheBoundAndFreedWithTheSlot) {
  const NgramProposerOptions options;
  NgramProposer proposer(options);
  const RequestIndex index(0);
  std::mt19937 rng(2);
  Tokens first(100);
  for (int32_t& token : first) token = static_cast<int32_t>(rng());
  proposer.Start(index, first);
  const auto tables = static_cast<size_t>(options.max_n - options.min_n + 1);
  for (size_t size = 101; size < 20000; ++size) {
    proposer.Observe(index, Tokens{static_cast<int32_t>(rng())});  // every n-gram is new
    ASSERT_LE(proposer.bytes(index), (8 + 11 * tables) * size + 256 * tables) << size;
  }
  proposer.Start(index, {});
  EXPECT_EQ(proposer.bytes(index), 0u);
  EXPECT_EQ(Proposed(proposer, 0, 4), Tokens{});
}

TEST(NgramProposerTest, OptionsAreChecked) {
  const auto code = [](const NgramProposerOptions& o) { return o.Validate().code(); };
  EXPECT_EQ(code({}), StatusCode::kOk);
  EXPECT_EQ(code({.min_n = 1, .max_n = 16}), StatusCode::kOk);
  EXPECT_EQ(code({.max_num_seqs = 0}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.min_n = 0}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.min_n = 5, .max_n = 4}), StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.max_n = 17}), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace pagemill::sampling
