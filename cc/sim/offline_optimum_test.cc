#include "cc/sim/offline_optimum.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cc/sim/random.h"
#include "cc/sim/simulator.h"
#include "gtest/gtest.h"

namespace pagemill::sim {
namespace {

constexpr int32_t kBlock = 4;

// A request whose prompt is the given blocks and one token more; one token of output.
TraceRequest Request(const std::vector<uint64_t>& blocks) {
  TraceRequest request;
  for (uint64_t block : blocks) request.content.push_back({block, kBlock, 0});
  request.content.push_back({999, 1, 0});
  request.num_prompt_tokens = static_cast<int32_t>(blocks.size()) * kBlock + 1;
  request.num_output_tokens = 1;
  return request;
}

uint64_t BestHits(const std::vector<TraceRequest>& trace, int32_t num_blocks) {
  const auto best = BestPrefixHits(trace, {num_blocks, kBlock});
  EXPECT_TRUE(best.ok()) << best.status().message();
  return best->hit_tokens / kBlock;
}

// Exhaustive search: after each request, each set of blocks to keep.
uint64_t TryAll(const std::vector<std::vector<uint64_t>>& trace, int32_t num_blocks) {
  // Signed: GCC 12's library compares vectors of wide unsigned numbers wrongly on big-endian CPUs.
  using Path = std::vector<int64_t>;
  std::function<uint64_t(size_t, std::set<Path>)> best = [&](size_t i, std::set<Path> kept) {
    if (i == trace.size()) return uint64_t{0};
    uint64_t hits = 0;
    std::set<Path> own;
    bool whole = true;
    for (size_t k = 1; k <= trace[i].size(); ++k) {
      const Path path(trace[i].begin(), trace[i].begin() + static_cast<ptrdiff_t>(k));
      own.insert(path);
      whole = whole && kept.contains(path);
      hits += whole;
    }
    std::vector<Path> others;
    for (const Path& path : kept) {
      if (!own.contains(path)) others.push_back(path);
    }
    const auto room = num_blocks - static_cast<int32_t>(trace[i].size()) - 1;
    uint64_t most = 0;
    for (uint32_t choice = 0; choice < (1u << others.size()); ++choice) {
      if (std::popcount(choice) > room) continue;
      std::set<Path> next = own;
      for (size_t k = 0; k < others.size(); ++k) {
        if ((choice >> k) & 1) next.insert(others[k]);
      }
      most = std::max(most, best(i + 1, next));
    }
    return hits + most;
  };
  return best(0, {});
}

TEST(OfflineOptimum, ARepeatedPromptHitsAllButItsLastToken) {
  const auto best = BestPrefixHits(std::vector{Request({1, 2}), Request({1, 2})}, {10, kBlock});
  ASSERT_TRUE(best.ok());
  EXPECT_EQ(best->prompt_tokens, 18u);
  EXPECT_EQ(best->hit_tokens, 8u);
}

TEST(OfflineOptimum, KeepsWhatComesSoonerAndStartsBeforeEnds) {
  // Room for one block besides a request's own three: the start of the first prompt is kept, but
  // neither its end nor the later prompt.
  const std::vector<TraceRequest> trace = {Request({1, 2}), Request({3, 4}), Request({1, 2}),
                                           Request({3, 4})};
  EXPECT_EQ(BestHits(trace, 4), 2u);
  EXPECT_EQ(BestHits(trace, 5), 4u);
  EXPECT_EQ(BestHits(trace, 3), 0u);
}

TEST(OfflineOptimum, AnAnswerIsHitByThePromptThatGoesOnFromIt) {
  TraceRequest first = Request({1});
  first.content = {{1, 4, 0}, {2, 8, 0}};
  first.num_prompt_tokens = 4;
  first.num_output_tokens = 8;  // the last one is not computed: one more full block, not two
  TraceRequest second = first;
  second.num_prompt_tokens = 12;
  second.num_output_tokens = 1;
  EXPECT_EQ(BestHits({first, second}, 10), 2u);
}

TEST(OfflineOptimum, IsTheBestOfAllChoices) {
  Random random(1, 0);
  for (int round = 0; round < 60; ++round) {
    std::vector<std::vector<uint64_t>> blocks(6);
    std::vector<TraceRequest> trace;
    for (auto& request : blocks) {
      const size_t depth = 1 + random.Below(3);
      for (size_t k = 0; k < depth; ++k) request.push_back(1 + 10 * k + random.Below(2));
      trace.push_back(Request(request));
    }
    for (int32_t num_blocks : {4, 5, 6}) {
      EXPECT_EQ(BestHits(trace, num_blocks), TryAll(blocks, num_blocks)) << round;
    }
  }
}

// The scheduler never beats it, and reaches it if nothing must be evicted.
TEST(OfflineOptimum, BoundsTheScheduler) {
  Random random(2, 0);
  std::vector<TraceRequest> trace;
  for (int i = 0; i < 200; ++i) {
    std::vector<uint64_t> blocks = {random.Below(3)};
    for (int k = 1; k < 12; ++k) blocks.push_back(100 * k + random.Below(2));
    trace.push_back(Request(blocks));
  }
  for (const auto& [eviction, num_blocks] : std::vector<std::pair<std::string, int32_t>>{
           {"lru", 13}, {"lru", 40}, {"lru", 20000}, {"reuse", 40}, {"reuse", 100}}) {
    SimulatorOptions options;
    options.scheduler.kv_cache.eviction = eviction;
    options.model = {1, 16, 1, 1, 16, 16, 3, 100000, 0, 16};
    options.device = {1000000000000, 1000000000000, 1000, 1000, 0};
    options.scheduler.kv_cache.block_size = kBlock;
    options.scheduler.kv_cache.num_blocks = num_blocks + 1;
    TraceOptions replay;
    replay.vocab_size = 100000;
    replay.concurrency = 1;
    auto simulator = *Simulator::Create(options, *TraceWorkload::Create(trace, replay));
    ASSERT_TRUE(simulator->Run(trace.size()).ok());
    const uint64_t hits = simulator->report().cached_tokens / kBlock;
    EXPECT_LE(hits, BestHits(trace, num_blocks));
    if (num_blocks == 20000) {
      EXPECT_EQ(hits, BestHits(trace, num_blocks));
    }
  }
}

TEST(OfflineOptimum, RefusesAPoolThatIsSmallerThanARequest) {
  const auto best = BestPrefixHits(std::vector{Request({1, 2})}, {2, kBlock});
  EXPECT_EQ(best.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(best.status().message().find("request 0 needs 3 blocks"), std::string::npos);
}

}  // namespace
}  // namespace pagemill::sim
