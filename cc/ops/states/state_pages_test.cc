#include "cc/ops/states/state_pages.h"

#include <gtest/gtest.h>

#include <vector>

namespace pagemill::ops {
namespace {

struct Request {
  int32_t context;  // before the step
  int32_t tokens;
  std::vector<int32_t> table;
};

// The runs of the last of `requests`, with blocks of 4 tokens: source, target, begin, end.
std::vector<std::vector<int32_t>> RunsOf(const std::vector<Request>& requests) {
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

}  // namespace
}  // namespace pagemill::ops
