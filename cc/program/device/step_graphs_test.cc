#include "cc/program/device/step_graphs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "cc/device/testing/test_device.h"

namespace pagemill::program {
namespace {

using ops::StepSizes;

const StepGraphOptions kOptions = {
    .max_sizes = {.tokens = 100, .requests = 20, .logits_rows = 30, .media_rows = 100},
    .max_tokens = 64,
    .max_padding_tokens = 40,
    .max_graphs = 2};

TEST(StepGraphs, BucketsHoldTheirStepsAndTheirPadding) {
  const StepGraphs graphs(kOptions);
  int64_t num_buckets = 0;
  for (int64_t tokens = 1; tokens <= 100; ++tokens) {
    for (int64_t requests = 1; requests <= std::min<int64_t>(tokens, 20); ++requests) {
      for (int64_t rows = 0; rows <= std::min<int64_t>(tokens, 30); ++rows) {
        const auto bucket = graphs.BucketOf({tokens, requests, rows});
        if (!bucket) continue;
        ++num_buckets;
        ASSERT_LE(bucket->tokens, 64);
        ASSERT_LE(bucket->requests, 20);
        ASSERT_LE(bucket->logits_rows, 30);
        ASSERT_GE(bucket->logits_rows, rows);
        const int64_t padding = bucket->requests - requests;
        const int64_t last = bucket->tokens - tokens - (padding - 1);
        if (tokens > requests) {
          ASSERT_GT(bucket->tokens, bucket->requests);
        }
        if (padding == 0) {
          ASSERT_EQ(bucket->tokens, tokens);
        } else {
          ASSERT_GE(last, 1);
          ASSERT_LE(last, 40);
        }
      }
    }
  }
  EXPECT_GT(num_buckets, 10000);
}

TEST(StepGraphs, DecodeStepsArePaddedByAThirdAtMost) {
  const StepGraphs graphs(kOptions);
  const auto bucket = [&](int64_t n) { return *graphs.BucketOf({n, n, n}); };
  EXPECT_EQ(bucket(1), (StepSizes{1, 1, 1}));
  EXPECT_EQ(bucket(5), (StepSizes{6, 6, 6}));
  EXPECT_EQ(bucket(9), (StepSizes{12, 12, 12}));
  EXPECT_EQ(bucket(17), (StepSizes{20, 20, 20})) << "the largest step";
}

TEST(StepGraphs, OtherStepsHaveAPaddingRequest) {
  const StepGraphs graphs(kOptions);
  EXPECT_EQ(graphs.BucketOf({30, 3, 2}), (StepSizes{32, 4, 4}));
  EXPECT_EQ(graphs.BucketOf({30, 4, 4}), (StepSizes{32, 6, 6}));
  EXPECT_EQ(graphs.BucketOf({20, 4, 16}), (StepSizes{24, 6, 24})) << "rows of drafts";
  EXPECT_EQ(graphs.BucketOf({2, 1, 1}), (StepSizes{16, 2, 2}));
  EXPECT_EQ(graphs.BucketOf({30, 20, 20}), std::nullopt) << "no room for a request";
  EXPECT_EQ(graphs.BucketOf({64, 3, 3}), std::nullopt) << "no room for a token";
  EXPECT_EQ(graphs.BucketOf({65, 3, 3}), std::nullopt);
  EXPECT_EQ(graphs.BucketOf({8, 2, 2, 1}), std::nullopt) << "media";
  EXPECT_EQ(graphs.BucketOf({5, 5, 5, 0, 5}), (StepSizes{6, 6, 6, 0, 6})) << "all is text";
  EXPECT_EQ(graphs.BucketOf({30, 3, 2, 0, 30}), (StepSizes{32, 4, 4, 0, 32}));
  EXPECT_EQ(graphs.BucketOf({0, 0, 0}), std::nullopt);
  StepGraphOptions short_tables = kOptions;
  short_tables.max_padding_tokens = 4;
  EXPECT_EQ(StepGraphs(short_tables).BucketOf({2, 1, 1}), std::nullopt);
}

struct Fixture {
  // Enqueues a step and returns how often its kernels were enqueued, recorded or not.
  int Run(int64_t size, int64_t num_done, bool with_adapters = false) {
    int times = 0;
    const auto enqueue = [&] {
      ++times;
      static_cast<device::testing::TestStream&>(*stream).Enqueue(
          [](device::testing::TestWorker&) { return OkStatus(); });
    };
    const Status status =
        graphs.Run({size, size, size}, with_adapters, step++, num_done, *stream, enqueue);
    EXPECT_TRUE(status.ok()) << status.ToString();
    return times;
  }
  device::testing::TestDevice device;
  std::unique_ptr<device::Stream> stream = *device.NewStream();
  StepGraphs graphs{kOptions};
  int64_t step = 0;
};

TEST(StepGraphs, RecordsABucketWhenItComesAgain) {
  Fixture f;
  EXPECT_EQ(f.Run(4, 0), 1);
  EXPECT_EQ(f.graphs.num_graphs(), 0);
  EXPECT_EQ(f.Run(4, 0), 1);
  EXPECT_EQ(f.graphs.num_graphs(), 1);
  EXPECT_EQ(f.Run(4, 0), 0);
  EXPECT_EQ(f.device.num_replays(), 2);
  EXPECT_EQ(f.device.num_enqueued(), 3);
}

TEST(StepGraphs, DropsTheGraphThatWasUsedLongestAgoOnceItIsDone) {
  Fixture f;
  for (const int64_t size : {1, 1, 2, 2, 1}) f.Run(size, 0);  // 2 is in use by step 3
  f.Run(3, 0);
  f.Run(3, 3);
  EXPECT_EQ(f.Run(3, 3), 1) << "step 3 is not done: nothing was recorded";
  EXPECT_EQ(f.device.num_replays(), 3);
  f.Run(3, 4);
  EXPECT_EQ(f.graphs.num_graphs(), 2);
  EXPECT_EQ(f.Run(3, 4), 0);
  EXPECT_EQ(f.Run(1, 4), 0);
  EXPECT_EQ(f.Run(2, 4), 1) << "dropped";
}

TEST(StepGraphs, StepsWithAndWithoutAdaptersHaveGraphsOfTheirOwn) {
  Fixture f;
  for (const bool with_adapters : {false, true}) {
    EXPECT_EQ(f.Run(4, 0, with_adapters), 1);
    EXPECT_EQ(f.Run(4, 0, with_adapters), 1);
    EXPECT_EQ(f.Run(4, 0, with_adapters), 0);
  }
  EXPECT_EQ(f.graphs.num_graphs(), 2);
}

TEST(StepGraphs, KeepsNoMoreGraphsThanTheDeviceHasMemoryFor) {
  Fixture f;
  f.Run(1, 0);
  f.Run(1, 0);
  f.device.RefuseGraphs();
  f.Run(2, 0);
  EXPECT_EQ(f.Run(2, 0), 2) << "recorded in vain, then enqueued";
  EXPECT_EQ(f.Run(1, 0), 0);
  EXPECT_EQ(f.graphs.num_graphs(), 1);
}

}  // namespace
}  // namespace pagemill::program
