#include "cc/sim/synthetic_workload.h"

#include <algorithm>

#include "gtest/gtest.h"

namespace pagemill::sim {
namespace {

SyntheticOptions Options() {
  SyntheticOptions options;
  options.num_requests = 200;
  options.prompt = {"uniform", 40, 500, 1 << 20};
  options.output = {"fixed", 10, 0, 1 << 20};
  options.arrivals.mean_gap_ns = 1000;
  return options;
}

bool StartsWith(const std::vector<int32_t>& tokens, const std::vector<int32_t>& prefix) {
  return tokens.size() > prefix.size() && std::equal(prefix.begin(), prefix.end(), tokens.begin());
}

TEST(SyntheticWorkload, GivesTheNumberAskedForInOrderOfTime) {
  SyntheticWorkload workload(Options());
  int64_t last = 0;
  int count = 0;
  while (const std::optional<int64_t> next = workload.NextTime()) {
    EXPECT_GE(*next, last);
    last = *next;
    const Arrival arrival = workload.Take();
    EXPECT_EQ(arrival.time_ns, last);
    EXPECT_EQ(arrival.num_output_tokens, 10);
    EXPECT_GE(arrival.prompt.size(), 20u);
    EXPECT_LE(arrival.prompt.size(), 60u);
    workload.Finish(arrival.ticket, last);
    ++count;
  }
  EXPECT_EQ(count, 200);
}

TEST(SyntheticWorkload, SomePromptsSharePrefixesAndNothingElse) {
  SyntheticOptions options = Options();
  options.prefix_tokens = 30;
  options.num_prefixes = 3;
  SyntheticWorkload workload(options);
  std::vector<std::vector<int32_t>> prompts;
  for (int i = 0; i < 60; ++i) prompts.push_back(workload.Take().prompt);
  std::vector<std::vector<int32_t>> kinds;
  for (const auto& prompt : prompts) {
    const std::vector<int32_t> prefix(prompt.begin(), prompt.begin() + 30);
    const auto found = std::find(kinds.begin(), kinds.end(), prefix);
    if (found == kinds.end()) kinds.push_back(prefix);
  }
  EXPECT_EQ(kinds.size(), 3u);
  EXPECT_NE(std::vector(prompts[0].begin() + 30, prompts[0].begin() + 40),
            std::vector(prompts[1].begin() + 30, prompts[1].begin() + 40));
}

TEST(SyntheticWorkload, ATurnContinuesItsConversation) {
  SyntheticOptions options = Options();
  options.concurrency = 1;
  options.mean_turns = 5;
  options.mean_think_ns = 500;
  SyntheticWorkload workload(options);
  std::vector<int32_t> before;
  uint64_t ticket = 0;
  int continued = 0;
  int64_t now = 0;
  while (workload.NextTime()) {
    EXPECT_GE(*workload.NextTime(), now);
    const Arrival arrival = workload.Take();
    if (arrival.ticket == ticket) {
      EXPECT_TRUE(StartsWith(arrival.prompt, before));
      ++continued;
    }
    ticket = arrival.ticket;
    before = arrival.prompt;
    for (const Segment& segment : arrival.output) {
      AppendTokens(segment, options.vocab_size, &before);
    }
    EXPECT_FALSE(workload.NextTime().has_value());  // its user waits for the answer
    now = arrival.time_ns + 100;
    workload.Finish(ticket, now);
  }
  EXPECT_NEAR(continued, 160, 25);
}

TEST(SyntheticWorkload, UsersBeginAnewWhenTheirConversationEnds) {
  SyntheticOptions options = Options();
  options.concurrency = 4;
  SyntheticWorkload workload(options);
  std::vector<uint64_t> open;
  int count = 0;
  while (workload.NextTime() || !open.empty()) {
    while (workload.NextTime()) {
      open.push_back(workload.Take().ticket);
      ++count;
    }
    EXPECT_LE(open.size(), 4u);
    workload.Finish(open.front(), count * 10);
    open.erase(open.begin());
  }
  EXPECT_EQ(count, 200);
}

TEST(SyntheticWorkload, ConversationsEndWhereTheContextIsFull) {
  SyntheticOptions options = Options();
  options.concurrency = 1;
  options.mean_turns = 10000;
  options.max_context_tokens = 300;
  SyntheticWorkload workload(options);
  while (workload.NextTime()) {
    const Arrival arrival = workload.Take();
    EXPECT_LE(arrival.prompt.size() + arrival.num_output_tokens, 300u);
    EXPECT_GE(arrival.num_output_tokens, 1);
    workload.Finish(arrival.ticket, arrival.time_ns);
  }
}

TEST(SyntheticOptions, RefusalsNameTheField) {
  SyntheticOptions options = Options();
  options.num_requests = 0;
  EXPECT_NE(options.Validate().message().find("num_requests is 0"), std::string::npos);
  options = Options();
  options.prefix_tokens = options.max_context_tokens;
  EXPECT_NE(options.Validate().message().find("leaves no room"), std::string::npos);
  EXPECT_TRUE(Options().Validate().ok());
}

}  // namespace
}  // namespace pagemill::sim
