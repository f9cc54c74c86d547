#include "cc/sampling/suffix_proposer.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace pagemill::sampling {
namespace {

using step::RequestIndex;
using Tokens = std::vector<int32_t>;

Tokens Proposed(SuffixProposer& proposer, int32_t slot, int32_t max_tokens) {
  Tokens drafts = {-7};
  proposer.Propose(RequestIndex(slot), max_tokens, &drafts);
  return drafts;
}

// A request that ends with this text behind its prompt.
void Serve(SuffixProposer& proposer, const Tokens& prompt, const Tokens& output,
           const std::string& salt = "") {
  proposer.Start(RequestIndex(0), prompt);
  proposer.Share(RequestIndex(0), salt);
  proposer.Observe(RequestIndex(0), output);
  proposer.Start(RequestIndex(0), {});
}

TEST(SuffixProposerTest, ProposesWhatFollowedInTheOwnText) {
  SuffixProposer proposer({.max_num_seqs = 2});
  proposer.Start(RequestIndex(1), Tokens{1, 2, 3, 4, 5, 6, 1, 2, 3, 4});
  EXPECT_EQ(Proposed(proposer, 1, 8), (Tokens{5, 6, 1, 2})) << "four tokens match";
  EXPECT_EQ(Proposed(proposer, 1, 2), (Tokens{5, 6}));
  EXPECT_EQ(Proposed(proposer, 1, 0), Tokens{});
  proposer.Observe(RequestIndex(1), Tokens{9});
  EXPECT_EQ(Proposed(proposer, 1, 8), Tokens{});
}

TEST(SuffixProposerTest, ProposesTheOutputsOfEarlierRequests) {
  SuffixProposer proposer({.max_num_seqs = 2});
  Serve(proposer, {20, 21, 22, 23}, {1, 2, 3, 4, 5});
  proposer.Start(RequestIndex(1), Tokens{30, 21, 22, 23});
  EXPECT_EQ(Proposed(proposer, 1, 8), Tokens{}) << "not shared";
  proposer.Share(RequestIndex(1), "");
  EXPECT_EQ(Proposed(proposer, 1, 8), (Tokens{1, 2, 3})) << "behind the end of its prompt";
  proposer.Observe(RequestIndex(1), Tokens{1, 2});
  EXPECT_EQ(Proposed(proposer, 1, 8), (Tokens{3, 4, 5})) << "as far as it goes";
  proposer.Share(RequestIndex(1), "other");
  EXPECT_EQ(Proposed(proposer, 1, 8), Tokens{});
}

TEST(SuffixProposerTest, PlacesVoteAndTheOutvotedLeave) {
  SuffixProposer proposer({.max_num_seqs = 2, .min_probability = 0.3});
  Serve(proposer, {7, 8, 9}, {1, 2, 3});
  Serve(proposer, {7, 8, 9}, {1, 4, 5});
  Serve(proposer, {7, 8, 9}, {1, 4, 6});
  Serve(proposer, {7, 8, 9}, {2, 4, 6});
  proposer.Start(RequestIndex(1), Tokens{7, 8, 9});
  proposer.Share(RequestIndex(1), "");
  // 1 has three of four votes, then 4 two of three: 0.5; then 6 and 5 one of two: 0.25.
  EXPECT_EQ(Proposed(proposer, 1, 8), (Tokens{1, 4}));
}

TEST(SuffixProposerTest, TheLongestMatchDecides) {
  SuffixProposer proposer({.max_num_seqs = 2, .max_match = 4});
  Serve(proposer, {5, 7, 8, 9}, {1});
  for (int i = 0; i < 3; ++i) Serve(proposer, {6, 7, 8, 9}, {2});
  proposer.Start(RequestIndex(1), Tokens{4, 5, 7, 8, 9});
  proposer.Share(RequestIndex(1), "");
  EXPECT_EQ(Proposed(proposer, 1, 8), (Tokens{1}));
}

TEST(SuffixProposerTest, AFactorAllowsMoreDraftsOrFewer) {
  Tokens text;
  for (int32_t i = 0; i < 40; ++i) text.push_back(i % 13);
  for (const double factor : {0.5, 1.0, 2.5}) {
    SuffixProposer proposer({.max_num_seqs = 1, .max_match = 8, .max_factor = factor});
    proposer.Start(RequestIndex(0), text);
    const Tokens drafts = Proposed(proposer, 0, 64);
    EXPECT_EQ(drafts.size(), static_cast<size_t>(8 * factor));
    for (size_t i = 0; i < drafts.size(); ++i) {
      EXPECT_EQ(drafts[i], static_cast<int32_t>((40 + i) % 13)) << "the period continues";
    }
  }
}

TEST(SuffixProposerTest, OptionsAreChecked) {
  const auto why_not = [](const SuffixProposerOptions& options) {
    return options.Validate().message();
  };
  EXPECT_EQ(why_not({}), "");
  EXPECT_EQ(why_not({.max_match = 2}), "max_match is 2, it must be at least 3");
  EXPECT_NE(why_not({.max_factor = 0.0}).find("max_factor is 0.0"), std::string::npos);
  EXPECT_NE(why_not({.min_probability = 1.5}).find("min_probability is 1.5"), std::string::npos);
  EXPECT_EQ(why_not({.max_cached_texts = -1}), "max_cached_texts is -1, it must be at least 0");
}

}  // namespace
}  // namespace pagemill::sampling
