// How much of a realistic traffic the prefix cache finds: conversations of several turns under
// shared system prompts, some answers asked for again, one-off prompts in between.
#include <algorithm>
#include <cstdio>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cc/kv_cache/kv_cache_manager.h"
#include "gtest/gtest.h"

namespace pagemill::kv_cache {
namespace {

using Tokens = std::vector<int32_t>;

struct Reuse {
  int32_t num_turns = 0;
  int64_t num_hit_tokens = 0, num_prompt_tokens = 0;
  // Cached tokens that a request computed again because no state to continue from was cached, and
  // whether that happened twice at one place.
  int64_t num_unreachable_tokens = 0;
  bool learned_twice = false;
  int32_t num_cached_blocks = 0;  // in the end

  // The part of the prompts that was found, from 0 to 1.
  double hit_rate() const {
    return static_cast<double>(num_hit_tokens) / static_cast<double>(num_prompt_tokens);
  }
};

class Traffic {
 public:
  Traffic(const KvCacheOptions& options, uint32_t seed) : cache_(options), random_(seed) {
    for (Tokens& system : systems_) system = Draw(200, 600);
  }

  // Runs a number of conversations, their turns mixed.
  void Converse(int num_conversations) {
    std::vector<Tokens> histories;
    for (int i = 0; i < num_conversations; ++i) histories.push_back(systems_[i % kSystems]);
    for (int turn = 0; turn < 6; ++turn) {
      for (Tokens& history : histories) {
        Append(Draw(10, 80), &history);
        if (Below(5) == 0) Run(history, Draw(10, 150));  // an answer that the user rejects
        const Tokens answer = Draw(10, 150);
        Run(history, answer);
        Append(answer, &history);
      }
    }
  }

  void AskOnce(int32_t num_tokens) { Run(Draw(num_tokens, num_tokens), Draw(4, 4)); }
  void AskUnderSystem(int system) {
    Tokens prompt = systems_[system];
    Append(Draw(10, 20), &prompt);
    Run(prompt, Draw(4, 4));
  }

  Reuse reuse() const {
    Reuse reuse = reuse_;
    reuse.num_cached_blocks = cache_.num_cached_blocks();
    return reuse;
  }

 private:
  static constexpr int kSystems = 4;

  uint32_t Below(uint32_t n) { return static_cast<uint32_t>(random_()) % n; }
  Tokens Draw(int32_t least, int32_t most) {
    Tokens tokens(static_cast<size_t>(least) + Below(static_cast<uint32_t>(most - least + 1)));
    for (int32_t& token : tokens) token = static_cast<int32_t>(Below(50000));
    return tokens;
  }
  static void Append(const Tokens& more, Tokens* tokens) {
    tokens->insert(tokens->end(), more.begin(), more.end());
  }

  // A prompt in chunks of 256 tokens, then its answer token by token.
  void Run(const Tokens& prompt, const Tokens& answer) {
    step::Request request;
    request.prompt_token_ids = prompt;
    RequestBlocks blocks(request);
    Tokens output;
    const PrefixMatch match = cache_.FindPrefix(request, {prompt, {}}, &blocks);
    reuse_.num_hit_tokens += match.num_tokens;
    reuse_.num_prompt_tokens += static_cast<int64_t>(prompt.size());
    ++reuse_.num_turns;
    if (blocks.branch_tokens() > 0) {
      reuse_.num_unreachable_tokens += blocks.branch_tokens() - match.num_tokens;
      const Tokens branch(prompt.begin(), prompt.begin() + blocks.branch_tokens());
      reuse_.learned_twice = reuse_.learned_twice || !branches_.insert(branch).second;
    }
    const auto prompt_size = static_cast<int32_t>(prompt.size());
    int32_t computed = match.num_tokens;
    ASSERT_TRUE(cache_.CanAllocate(blocks, &match, prompt_size));
    const auto compute = [&](int32_t end) {
      std::vector<std::vector<BlockId>> added;
      ASSERT_TRUE(cache_.CanAllocate(blocks, &match, end));
      ASSERT_TRUE(cache_.Allocate(end, &match, &blocks, &added).ok());
      computed = end;
      cache_.Commit(request, {prompt, output}, computed, &blocks);
    };
    while (computed < prompt_size) compute(std::min(computed + 256, prompt_size));
    for (int32_t token : answer) {
      output.push_back(token);
      compute(computed + 1);
    }
    cache_.Free(&blocks);
  }

  KvCacheManager cache_;
  std::mt19937 random_;
  Tokens systems_[kSystems];
  Reuse reuse_;
  std::set<Tokens> branches_;  // places where a state was missing
};

KvCacheOptions Options(int32_t num_blocks, std::vector<KvGroupOptions> groups) {
  KvCacheOptions options;
  options.num_blocks = num_blocks;
  options.groups = std::move(groups);
  return options;
}

const KvGroupOptions kState{.kind = "state_space", .pages_per_block = 4};
const KvGroupOptions kEvery{.kind = "state_space", .checkpoints = StateCheckpoints::kEveryBoundary};
const KvGroupOptions kWindow{.kind = "sliding_window", .window_tokens = 128};

constexpr int kConversations = 40;

Reuse Conversations(const KvCacheOptions& options, uint32_t seed) {
  Traffic traffic(options, seed);
  traffic.Converse(kConversations);
  return traffic.reuse();
}

TEST(PrefixReuse, HybridModelsHitAsMuchAsFullAttention) {
  for (uint32_t seed = 1; seed <= 3; ++seed) {
    const Reuse full = Conversations(Options(60000, {{"full"}}), seed);
    EXPECT_GT(full.hit_rate(), 0.9);
    for (const KvGroupOptions& other : {kWindow, kEvery}) {
      const Reuse hybrid = Conversations(Options(60000, {{"full"}, other}), seed);
      EXPECT_EQ(hybrid.num_hit_tokens, full.num_hit_tokens);
    }
    // The first request that branches at a place computes the tokens before it again, to leave a
    // state there: once for a system prompt, or for what an answer that was asked for again shares
    // by chance.
    const Reuse hybrid = Conversations(Options(60000, {{"full"}, kState}), seed);
    EXPECT_EQ(hybrid.num_hit_tokens + hybrid.num_unreachable_tokens, full.num_hit_tokens);
    EXPECT_FALSE(hybrid.learned_twice);
    EXPECT_GT(hybrid.hit_rate(), 0.99 * full.hit_rate());
  }
}

TEST(PrefixReuse, InASmallPoolStatesCostTheirPagesAndNoMore) {
  // A pool with additional pages for the states that a conversation continues from, or might:
  // where its last answer begins, where it ends, and where the answer before ended.
  for (const char* eviction : {"adaptive", "lru", "reuse"}) {
    for (int32_t num_blocks : {700, 1000, 1500, 2000}) {
      for (int32_t pages : {1, 48}) {
        KvCacheOptions options = Options(num_blocks, {{"full"}});
        options.eviction = eviction;
        const Reuse full = Conversations(options, 5);
        options.groups.push_back({.kind = "state_space", .pages_per_block = pages});
        options.num_blocks += 3 * pages * (kConversations + 4);
        const Reuse hybrid = Conversations(options, 5);
        EXPECT_GT(hybrid.hit_rate(), 0.97 * full.hit_rate())
            << eviction << ", " << num_blocks << " blocks, states of " << pages << " pages";
      }
    }
  }
}

TEST(PrefixReuse, WhatEachModeOfCheckpointsCosts) {
  const auto num_cached = [](std::vector<KvGroupOptions> groups) {
    const Reuse reuse = Conversations(Options(60000, std::move(groups)), 5);
    return std::pair(reuse.num_cached_blocks, reuse.num_turns);
  };
  const auto [full, num_turns] = num_cached({{"full"}});
  const int32_t every = num_cached({{"full"}, kEvery}).first - full;
  const int32_t last = num_cached({{"full"}, kState}).first - full;
  const int32_t none =
      num_cached({{"full"}, {.kind = "state_space", .checkpoints = StateCheckpoints::kNone}}).first;
  std::printf("%d blocks of 16 tokens in %d turns; states kept: every boundary %d, last %d\n", full,
              num_turns, every, last);
  EXPECT_EQ(every, full);  // one for each block of tokens
  // Where the answer begins, where it ends, and seldom the end of a chunk of the prompt.
  EXPECT_LT(last, num_turns * 5 / 2);
  EXPECT_EQ(none, 0);  // nothing is kept, and nothing found
}

TEST(PrefixReuse, ABranchIsLearnedByTheSecondRequest) {
  const auto hits = [](std::vector<KvGroupOptions> groups) {
    Traffic traffic(Options(1000, std::move(groups)), 3);
    std::vector<int64_t> hits = {0};
    for (int i = 0; i < 4; ++i) {
      traffic.AskUnderSystem(0);
      hits.push_back(traffic.reuse().num_hit_tokens);
    }
    for (size_t i = hits.size() - 1; i > 0; --i) hits[i] -= hits[i - 1];
    return hits;
  };
  const std::vector<int64_t> full = hits({{"full"}}), hybrid = hits({{"full"}, kState});
  EXPECT_EQ(full[1], 0);
  EXPECT_GT(full[2], 0);
  EXPECT_LT(hybrid[2], full[2]);
  EXPECT_EQ(hybrid[3], full[3]);
  EXPECT_EQ(hybrid[4], full[4]);
}

TEST(PrefixReuse, GeneratedCheckpointsDoNotPileUp) {
  // 4,096 generated tokens fill 256 blocks; of their states all but one are dropped.
  KvCacheManager cache(Options(1000, {{"full"}, {.kind = "state_space"}}));
  step::Request request;
  request.prompt_token_ids = std::vector<int32_t>(40, 7);
  RequestBlocks blocks(request);
  const std::vector<int32_t> output(4096, 8);
  for (int32_t end = 40; end <= 4136; end = end < 4136 ? end + 1 : 5000) {
    std::vector<std::vector<BlockId>> added;
    ASSERT_TRUE(cache.Allocate(end, nullptr, &blocks, &added).ok());
    cache.Commit(request, {request.prompt_token_ids, output}, end, &blocks);
  }
  cache.Free(&blocks);
  // The prompt leaves the state after 32 tokens. 4136 = 258 blocks and 8 tokens.
  EXPECT_EQ(cache.num_cached_blocks(), 258 + 2);
}

TEST(PrefixReuse, ReusedPrefixesStayThroughBurstsOfOthers) {
  const auto hits = [](const char* eviction) {
    KvCacheOptions options = Options(400, {{"full"}});
    options.eviction = eviction;
    Traffic traffic(options, 9);
    for (int i = 0; i < 200; ++i) {
      traffic.AskUnderSystem(i % 4);
      if (i % 8 == 7) {
        for (int k = 0; k < 4; ++k) traffic.AskOnce(2000);  // 500 blocks: more than the pool
      }
    }
    return traffic.reuse().num_hit_tokens;
  };
  const int64_t lru = hits("lru");
  EXPECT_GT(hits("reuse"), lru + lru / 4);
  EXPECT_GT(hits("adaptive"), lru + lru / 4);
}

}  // namespace
}  // namespace pagemill::kv_cache
