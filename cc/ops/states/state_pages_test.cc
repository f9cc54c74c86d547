#include "cc/ops/states/state_pages.h"

#include <gtest/gtest.h>

#include <vector>

#include "cc/ops/batch_view.h"

namespace pagemill::ops {
namespace {

struct Request {
  int32_t context;  // before the step
  int32_t tokens;
  std::vector<int32_t> table;
};

// The runs of the last of `requests`, with blocks of 4 tokens: source, target, begin, end.
std::vector<std::vector<int32_t>> RunsOf(const std::vector<Request>& requests,
                                         int32_t recent_states = 0) {
  std::vector<int32_t> starts = {0}, lengths, tables;
  size_t stride = 0;
  for (const Request& r : requests) stride = std::max(stride, r.table.size());
  for (const Request& r : requests) {
    starts.push_back(starts.back() + r.tokens);
    lengths.push_back(r.context + r.tokens);
    tables.insert(tables.end(), r.table.begin(), r.table.end());
    tables.resize(lengths.size() * stride, -1);
  }
  const BatchView batch{{.num_requests = static_cast<int32_t>(requests.size()),
                         .query_start = starts.data(),
                         .seq_lens = lengths.data()},
                        {.block_size = 4,
                         .recent_states = recent_states,
                         .block_table = tables.data(),
                         .block_table_stride = static_cast<int64_t>(stride)}};
  std::vector<std::vector<int32_t>> runs;
  ForEachStateRun(batch, static_cast<int64_t>(requests.size()) - 1, [&](const StateRun& run) {
    runs.push_back({run.source, run.target, run.begin, run.end});
  });
  return runs;
}

using Runs = std::vector<std::vector<int32_t>>;

TEST(StatePages, AFreshRequestReadsNothing) {
  EXPECT_EQ(RunsOf({{0, 3, {7}}}), (Runs{{kNullPage, 7, 0, 3}}));
  EXPECT_EQ(RunsOf({{0, 4, {7}}}), (Runs{{kNullPage, 7, 0, 4}}));
}

TEST(StatePages, DecodeStaysInItsPageUntilTheBoundary) {
  EXPECT_EQ(RunsOf({{5, 1, {0, 7}}}), (Runs{{7, 7, 0, 1}}));
  EXPECT_EQ(RunsOf({{7, 1, {0, 7}}}), (Runs{{7, 7, 0, 1}}));
  EXPECT_EQ(RunsOf({{8, 1, {0, 7, 9}}}), (Runs{{7, 9, 0, 1}}));
}

TEST(StatePages, IntermediateStatesAreStoredIfThereIsAPage) {
  // Tokens 6 to 17: boundaries at 8 (its own page), 12 (null), 16 (a page), the end at 18.
  EXPECT_EQ(RunsOf({{6, 12, {0, 3, 0, 5, 6}}}),
            (Runs{{3, 3, 0, 2}, {3, 5, 2, 10}, {5, 6, 10, 12}}));
}

TEST(StatePages, RowsCountFromTheStepsFirstToken) {
  EXPECT_EQ(RunsOf({{9, 2, {0, 2, 1}}, {4, 5, {8, 0, 4}}}), (Runs{{8, 4, 2, 7}}));
  EXPECT_TRUE(RunsOf({{9, 2, {0, 2, 1}}, {4, 0, {8}}}).empty());
}

TEST(StatePages, TheNewestStatesHavePagesByTheirNumberOfTokens) {
  // Pages 7, 8 and 9 of states after 3n, 3n + 1 and 3n + 2 tokens, then the positions.
  const auto runs_of = [](int32_t context, int32_t tokens, std::vector<int32_t> positions) {
    positions.insert(positions.begin(), {7, 8, 9});
    return RunsOf({{context, tokens, positions}}, 3);
  };
  EXPECT_EQ(runs_of(5, 1, {0, 2}), (Runs{{9, 7, 0, 1}}));
  // Two drafts, and again from the first of them.
  EXPECT_EQ(runs_of(4, 3, {0, 2}), (Runs{{8, 9, 0, 1}, {9, 7, 1, 2}, {7, 8, 2, 3}}));
  EXPECT_EQ(runs_of(5, 2, {0, 2}), (Runs{{9, 7, 0, 1}, {7, 8, 1, 2}}));
  // A boundary has its own page, if it has one.
  EXPECT_EQ(runs_of(6, 2, {0, 2}), (Runs{{7, 8, 0, 1}, {8, 2, 1, 2}}));
  EXPECT_EQ(runs_of(8, 1, {0, 2, 0}), (Runs{{2, 7, 0, 1}}));
  EXPECT_EQ(runs_of(6, 2, {0, 0}), (Runs{{7, 8, 0, 1}, {8, 9, 1, 2}}));
  EXPECT_EQ(runs_of(8, 1, {0, 0, 0}), (Runs{{9, 7, 0, 1}}));
  // A prompt: boundaries at 4 (null) and 8 (a page), then the last three states.
  EXPECT_EQ(runs_of(0, 14, {0, 3, 0, 4}),
            (Runs{{0, 3, 0, 8}, {3, 7, 8, 12}, {7, 8, 12, 13}, {8, 9, 13, 14}}));
}

}  // namespace
}  // namespace pagemill::ops
