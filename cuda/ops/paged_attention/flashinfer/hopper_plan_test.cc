// Plans of prompts: of random batches each tile of each prompt and head is the work of one block,
// nothing is written behind the arrays, and blocks have about the same work.
#include "cuda/ops/paged_attention/flashinfer/hopper_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <tuple>
#include <vector>

namespace pagemill::gpu {
namespace {

constexpr size_t kGuardBytes = 4096;
constexpr std::byte kGuard{0xa5};

struct Batch {
  FlashInferShape shape;
  std::vector<int32_t> query_start = {0};
  std::vector<int32_t> seq_lens = {};

  int32_t Tokens(int32_t r) const { return query_start[r + 1] - query_start[r]; }
  bool IsPrompt(int32_t r) const {
    return Tokens(r) >= kPromptTokens || (shape.requests == 1 && Tokens(r) > 0);
  }
};

Batch BatchOf(FlashInferShape shape, const std::vector<int32_t>& tokens,
              const std::vector<int32_t>& contexts) {
  Batch batch = {.shape = shape};
  for (size_t r = 0; r < tokens.size(); ++r) {
    batch.query_start.push_back(batch.query_start.back() + tokens[r]);
    batch.seq_lens.push_back(contexts[r] + tokens[r]);
  }
  batch.shape.tokens = batch.query_start.back();
  batch.shape.requests = static_cast<int32_t>(tokens.size());
  batch.shape.table_stride = *std::ranges::max_element(batch.seq_lens) / shape.block_size + 3;
  return batch;
}

class Random {
 public:
  int32_t Int(int32_t low, int32_t high) {
    return std::uniform_int_distribution<int32_t>(low, high)(engine_);
  }
  int32_t Choose(std::initializer_list<int32_t> values) {
    return values.begin()[Int(0, static_cast<int32_t>(values.size()) - 1)];
  }

  // Requests of no token, of one, of nearly as many as a prompt, and of more.
  Batch NextBatch() {
    FlashInferShape shape = {.block_size = Choose({8, 16, 128})};
    shape.kv_heads = Choose({1, 2, 8});
    shape.q_heads = shape.kv_heads * Choose({1, 3, 8});
    shape.head_dim = Choose({64, 128});
    std::vector<int32_t> tokens, contexts;
    for (int32_t r = Choose({1, 2, 7, 60}); r > 0; --r) {
      const int32_t most = Choose({0, 1, 1, kPromptTokens + 2, 3000});
      tokens.push_back(Int(std::min(most, 1), most));
      contexts.push_back(Choose({0, 1, 5000}) * Int(0, 2));
    }
    return BatchOf(shape, tokens, contexts);
  }

 private:
  std::mt19937 engine_{1};
};

// In memory of a step of up to `most`, with bytes behind it that nothing may change.
class GuardedPlan {
 public:
  GuardedPlan(const Batch& batch, const FlashInferShape& most)
      : bytes_(HopperPlanView::Bytes(most)),
        memory_(static_cast<size_t>(bytes_) + kGuardBytes, kGuard),
        view_(HopperPlanView::Of(batch.shape, memory_.data())) {
    PlanHopper(batch.shape, batch.query_start.data(), batch.seq_lens.data(), memory_.data());
  }
  const HopperPlanView& view() const { return view_; }
  bool IsIntact() const {
    return std::all_of(memory_.begin() + bytes_, memory_.end(),
                       [](std::byte b) { return b == kGuard; });
  }

 private:
  const int64_t bytes_;
  std::vector<std::byte> memory_;
  const HopperPlanView view_;
};

// Every (head, request, tile of its rows) of prompts is the work of one block.
void ExpectCovered(const Batch& batch, const HopperPlanView& plan) {
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
    if (!batch.IsPrompt(r)) continue;
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
  Random random;
  int prompts = 0;
  for (int i = 0; i < 300; ++i) {
    SCOPED_TRACE(i);
    const Batch batch = random.NextBatch();
    if (!MayHavePrompts(batch.shape)) continue;
    FlashInferShape most = batch.shape;
    most.tokens += random.Int(0, 500);
    most.requests += random.Int(0, 10);
    const GuardedPlan plan(batch, most);
    ASSERT_TRUE(plan.IsIntact());
    ExpectCovered(batch, plan.view());
    ASSERT_FALSE(HasFatalFailure());
    prompts += plan.view().first_tile[kHopperBlocks] > 0;
  }
  EXPECT_GT(prompts, 100);
}

// The memory of prompts that fill as few of their tiles as possible.
TEST(HopperPlan, TilesOfOneRowFit) {
  for (const int32_t head_dim : {64, 128}) {
    const FlashInferShape shape = {
        .q_heads = 3, .kv_heads = 1, .head_dim = head_dim, .block_size = 16};
    const int32_t tokens = std::max(HopperTileRows(head_dim) + 1, kPromptTokens);
    const Batch batch =
        BatchOf(shape, std::vector<int32_t>(50, tokens), std::vector<int32_t>(50, 0));
    const GuardedPlan plan(batch, batch.shape);
    EXPECT_TRUE(plan.IsIntact());
    ExpectCovered(batch, plan.view());
  }
}

TEST(HopperPlan, StepsThatOnlyDecodeHaveNoPrompts) {
  const FlashInferShape shape = {.q_heads = 8, .kv_heads = 2, .head_dim = 128, .block_size = 16};
  EXPECT_FALSE(MayHavePrompts(
      BatchOf(shape, std::vector<int32_t>(512, 1), std::vector<int32_t>(512, 100)).shape));
  EXPECT_FALSE(MayHavePrompts(BatchOf(shape, {127}, {0}).shape));
  EXPECT_TRUE(MayHavePrompts(BatchOf(shape, {128}, {0}).shape));
  EXPECT_TRUE(MayHavePrompts(BatchOf(shape, {1, 128, 1}, {70, 0, 70}).shape));
}

// A graph pads a step's tokens: a step's only request is planned here, however few tokens it has.
TEST(HopperPlan, TheOnlyRequestOfAPaddedStepHasWork) {
  Batch batch = BatchOf(
      {.q_heads = 2, .kv_heads = 1, .head_dim = 128, .block_size = 16}, {100}, {40});
  batch.shape.tokens = 192;
  ASSERT_TRUE(MayHavePrompts(batch.shape));
  const GuardedPlan plan(batch, batch.shape);
  EXPECT_EQ(plan.view().first_tile[kHopperBlocks], 2);
  ExpectCovered(batch, plan.view());
}

// Tiles of a long prompt have up to 128 times the keys of others, and blocks nearly the same.
TEST(HopperPlan, BlocksHaveAboutTheSameWork) {
  const Batch batch = BatchOf(
      {.q_heads = 32, .kv_heads = 8, .head_dim = 128, .block_size = 16}, {16384}, {0});
  const GuardedPlan plan(batch, batch.shape);
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
