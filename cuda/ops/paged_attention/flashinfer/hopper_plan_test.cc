// Plans of prompts: of random batches each tile of each prompt and head is the work of one block,
// nothing is written behind the arrays, and blocks have about the same work.
#include "cuda/ops/paged_attention/flashinfer/hopper_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include "cuda/ops/paged_attention/flashinfer/testing/plan_batch.h"

namespace pagemill::gpu {
namespace {

using Plan = GuardedPlan<HopperPlanView, PlanHopper>;

// Requests of no token, of one, of nearly as many as a prompt, and of more.
PlanBatch NextBatch(PlanRandom& random) {
  FlashInferShape shape = {.block_size = random.Choose({8, 16, 128})};
  shape.kv_heads = random.Choose({1, 2, 8});
  shape.q_heads = shape.kv_heads * random.Choose({1, 3, 8});
  shape.head_dim = random.Choose({64, 128, 256});
  std::vector<int32_t> tokens, contexts;
  for (int32_t r = random.Choose({1, 2, 7, 60}); r > 0; --r) {
    const int32_t most = random.Choose({0, 1, 1, kPromptTokens + 2, 3000});
    tokens.push_back(random.Int(std::min(most, 1), most));
    contexts.push_back(random.Choose({0, 1, 5000}) * random.Int(0, 2));
  }
  return PlanBatch::Of(shape, tokens, contexts);
}

// Every (head, request, tile of its rows) of prompts is the work of one block.
void ExpectCovered(const PlanBatch& batch, const HopperPlanView& plan) {
  const int32_t rows = HopperTileRows(batch.shape.head_dim);
  ASSERT_EQ(plan.first_tile[0], 0);
  for (int32_t block = 0; block < kHopperBlocks; ++block) {
    ASSERT_LE(plan.first_tile[block], plan.first_tile[block + 1]);
  }
  std::map<std::tuple<int32_t, int32_t, int32_t>, int> tiles;  // head, first page, tile
  for (int32_t i = 0; i < plan.first_tile[kHopperBlocks]; ++i) {
    ++tiles[{plan.head[i], plan.first_page[i], plan.tile[i]}];
    const int32_t r = plan.first_page[i] / batch.shape.table_stride;
    ASSERT_EQ(plan.first_page[i], r * batch.shape.table_stride);
    EXPECT_EQ(plan.query_start[i], batch.query_start[r]);
    EXPECT_EQ(plan.query_tokens[i], batch.Tokens(r));
    EXPECT_EQ(plan.seq_len[i], batch.seq_lens[r]);
  }
  size_t expected = 0;
  for (int32_t r = 0; r < batch.shape.requests; ++r) {
    if (batch.Tokens(r) < kPromptTokens) continue;
    for (int32_t head = 0; head < batch.shape.q_heads; ++head) {
      for (int32_t tile = 0; tile * rows < batch.Tokens(r); ++tile, ++expected) {
        EXPECT_EQ((tiles[{head, r * batch.shape.table_stride, tile}]), 1)
            << r << " " << head << " " << tile;
      }
    }
  }
  EXPECT_EQ(tiles.size(), expected);
}

TEST(HopperPlan, CoversEachTileOnceWithinItsMemory) {
  PlanRandom random;
  int prompts = 0;
  for (int i = 0; i < 300; ++i) {
    SCOPED_TRACE(i);
    const PlanBatch batch = NextBatch(random);
    if (!MayHavePrompts(batch.shape)) continue;
    FlashInferShape most = batch.shape;
    most.tokens += random.Int(0, 500);
    most.requests += random.Int(0, 10);
    const Plan plan(batch, most);
    ASSERT_TRUE(plan.IsIntact());
    ExpectCovered(batch, plan.view());
    ASSERT_FALSE(HasFatalFailure());
    prompts += plan.view().first_tile[kHopperBlocks] > 0;
  }
  EXPECT_GT(prompts, 100);
}

// The memory of prompts that fill as few of their tiles as possible.
TEST(HopperPlan, TilesOfOneRowFit) {
  for (const int32_t head_dim : {64, 128, 256}) {
    const FlashInferShape shape = {
        .q_heads = 3, .kv_heads = 1, .head_dim = head_dim, .block_size = 16};
    const int32_t tokens = std::max(HopperTileRows(head_dim) + 1, kPromptTokens);
    const PlanBatch batch =
        PlanBatch::Of(shape, std::vector<int32_t>(50, tokens), std::vector<int32_t>(50, 0));
    const Plan plan(batch);
    EXPECT_TRUE(plan.IsIntact());
    ExpectCovered(batch, plan.view());
  }
}

TEST(HopperPlan, StepsThatOnlyDecodeHaveNoPrompts) {
  const FlashInferShape shape = {.q_heads = 8, .kv_heads = 2, .head_dim = 128, .block_size = 16};
  EXPECT_FALSE(MayHavePrompts(
      PlanBatch::Of(shape, std::vector<int32_t>(512, 1), std::vector<int32_t>(512, 100)).shape));
  EXPECT_FALSE(MayHavePrompts(PlanBatch::Of(shape, {127}, {0}).shape));
  EXPECT_TRUE(MayHavePrompts(PlanBatch::Of(shape, {128}, {0}).shape));
  EXPECT_TRUE(MayHavePrompts(PlanBatch::Of(shape, {1, 128, 1}, {70, 0, 70}).shape));
}

// Tiles of a long prompt have up to 128 times the keys of others, and blocks nearly the same.
TEST(HopperPlan, BlocksHaveAboutTheSameWork) {
  const PlanBatch batch = PlanBatch::Of(
      {.q_heads = 32, .kv_heads = 8, .head_dim = 128, .block_size = 16}, {16384}, {0});
  const Plan plan(batch);
  std::vector<int64_t> keys(kHopperBlocks, 0);
  for (int32_t block = 0; block < kHopperBlocks; ++block) {
    for (int32_t i = plan.view().first_tile[block]; i < plan.view().first_tile[block + 1]; ++i) {
      keys[block] += (plan.view().tile[i] + 1) * 128;
    }
  }
  const auto [least, most] = std::ranges::minmax(keys);
  EXPECT_LT(most, 1.02 * least);
}

}  // namespace
}  // namespace pagemill::gpu
