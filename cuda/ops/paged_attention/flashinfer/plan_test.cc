// FlashInfer's planner on the host: random batches are divided completely, each piece of work is
// one block's, and nothing is written behind the arrays.
#include "cuda/ops/paged_attention/flashinfer/plan.h"

#include <gtest/gtest.h>

#include <map>
#include <tuple>
#include <vector>

#include "cuda/ops/paged_attention/flashinfer/testing/plan_batch.h"

// Functions of the CUDA runtime that an object of nvcc calls before main(), and that the planner
// calls if it fails.
extern "C" {
void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
void __cudaUnregisterFatBinary(void**) {}
const char* cudaGetErrorString(int) { return "an error"; }
}

namespace pagemill::gpu {
namespace {

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

constexpr FlashInferShape kLlama8B = {
    .q_heads = 32, .kv_heads = 8, .head_dim = 128, .block_size = 16};

// What is left beside prompts, which the kernel for Hopper computes.
constexpr int32_t kMostTokens = 127;

using Plan = GuardedPlan<FlashInferPlanView, PlanFlashInfer>;

// A step that decodes, one with prompts, or both.
PlanBatch NextBatch(PlanRandom& random) {
  FlashInferShape shape;
  shape.kv_heads = random.Choose({1, 2, 3, 8, 32, 264});
  shape.q_heads = shape.kv_heads * random.Choose({1, 3, 4, 7, 16});
  shape.head_dim = random.Choose({64, 128, 256});
  shape.block_size = random.Choose({8, 16, 32, 128});
  const int32_t longest = random.Choose({1, 20, 3000, 40000});
  const int32_t prompts = random.Choose({0, 0, 1, 3});
  std::vector<int32_t> tokens, contexts;
  for (int32_t r = 0, requests = random.Choose({1, 2, 5, 31, 256}); r < requests; ++r) {
    tokens.push_back(r < prompts ? random.Int(0, 700) : 1);
    contexts.push_back(random.Int(1, longest));
  }
  return PlanBatch::Of(shape, tokens, contexts);
}

// Every (request, tile of its rows, chunk of its keys) is the work of one block; requests of more
// than `most_tokens` have none.
void ExpectCovered(const PlanBatch& batch, const FlashInferPlanView& plan) {
  const FlashInferShape& shape = batch.shape;
  const FlashInferGrid grid = FlashInferGrid::Of(shape);
  const int32_t chunk_tokens = *plan.chunk_tokens;
  if (grid.splits) {
    EXPECT_EQ(chunk_tokens % shape.block_size, 0);
  }
  std::map<std::tuple<int32_t, int32_t, int32_t>, int> blocks;
  for (int32_t i = 0; i < grid.blocks; ++i) {
    if (plan.has_work[i]) ++blocks[{plan.request[i], plan.tile[i], plan.chunk[i]}];
  }
  size_t num_pieces = 0;
  int64_t states = 0;
  for (int32_t r = 0; r < shape.requests; ++r) {
    const int32_t tokens = batch.Tokens(r);
    const int64_t rows = int64_t{tokens} * (shape.q_heads / shape.kv_heads);
    const int64_t chunks = tokens > shape.most_tokens ? 0
                           : grid.splits              ? CeilDiv(batch.seq_lens[r], chunk_tokens)
                                                      : 1;
    for (int32_t tile = 0; chunks > 0 && tile < CeilDiv(rows, grid.tile_rows); ++tile) {
      for (int32_t chunk = 0; chunk < chunks; ++chunk, ++num_pieces) {
        const auto found = blocks.find({r, tile, chunk});
        ASSERT_TRUE(found != blocks.end()) << r << " " << tile << " " << chunk;
        EXPECT_EQ(found->second, 1);
      }
    }
    EXPECT_EQ(plan.first_output[r], grid.splits ? states : batch.query_start[r]) << r;
    for (int32_t t = batch.query_start[r]; grid.splits && t < batch.query_start[r + 1]; ++t) {
      EXPECT_EQ(plan.first_state[t + 1] - plan.first_state[t], chunks);
    }
    states += tokens * chunks;
    const int32_t pages = plan.first_page[r + 1] - plan.first_page[r];
    EXPECT_EQ((pages - 1) * shape.block_size + plan.last_page_tokens[r], batch.seq_lens[r]);
  }
  EXPECT_EQ(blocks.size(), num_pieces);
  if (grid.splits) {
    EXPECT_EQ(plan.first_output[shape.requests], states);
    EXPECT_EQ(plan.first_state[shape.tokens], states);
    EXPECT_LE(states, grid.MaxStates(shape));
  }
}

TEST(FlashInferPlan, CoversEachPieceOnceWithinItsMemory) {
  PlanRandom random;
  int splits = 0, whole = 0;
  for (int i = 0; i < 400; ++i) {
    const PlanBatch batch = NextBatch(random);
    if (batch.shape.tokens == 0) continue;
    SCOPED_TRACE(i);
    FlashInferShape most = batch.shape;
    most.tokens += random.Int(0, 500);
    most.requests += random.Int(0, 10);
    const Plan plan(batch, most);
    ASSERT_TRUE(plan.IsIntact());
    ExpectCovered(batch, plan.view());
    ASSERT_FALSE(HasFatalFailure());
    const FlashInferGrid grid = FlashInferGrid::Of(batch.shape);
    ++(grid.splits ? splits : whole);
  }
  EXPECT_GT(splits, 50);
  EXPECT_GT(whole, 50);
}

TEST(FlashInferPlan, RequestsOfManyTokensAreLeftOut) {
  PlanRandom random;
  int splits = 0, whole = 0;
  for (int i = 0; i < 400; ++i) {
    PlanBatch batch = NextBatch(random);
    if (batch.shape.tokens <= kMostTokens) continue;
    SCOPED_TRACE(i);
    FlashInferShape most = batch.shape;
    batch.shape.most_tokens = kMostTokens;
    const Plan plan(batch, most);
    ASSERT_TRUE(plan.IsIntact());
    ExpectCovered(batch, plan.view());
    ASSERT_FALSE(HasFatalFailure());
    ++(FlashInferGrid::Of(batch.shape).splits ? splits : whole);
  }
  EXPECT_GT(splits, 20);
  EXPECT_GT(whole, 20);
}

// A prompt that is left out takes no part of the GPU from a long context, however long it is.
TEST(FlashInferPlan, ALongContextBesideAPromptIsDivided) {
  FlashInferShape shape = kLlama8B;
  shape.most_tokens = kMostTokens;
  const PlanBatch batch = PlanBatch::Of(shape, {8192, 1}, {0, 65536});
  const Plan plan(batch);
  EXPECT_EQ(plan.view().first_state[8192], 0);
  EXPECT_GE(plan.view().first_state[8193], 32);
}

// What a recorded launch depends on is the same for all batches of one size, and the states fit in
// what the largest tiles need.
TEST(FlashInferPlan, SizesFollowFromTheShape) {
  PlanRandom random;
  for (int i = 0; i < 100; ++i) {
    PlanBatch batch = NextBatch(random);
    if (batch.shape.tokens == 0) continue;
    const FlashInferGrid grid = FlashInferGrid::Of(batch.shape);
    const FlashInferGrid most = {.tile_rows = MostTileRows(batch.shape.head_dim),
                                 .blocks = kPlannedBlocks / batch.shape.kv_heads,
                                 .splits = true};
    EXPECT_LE(grid.MaxStates(batch.shape), most.MaxStates(batch.shape));
    for (int32_t& seq_len : batch.seq_lens) seq_len += random.Int(0, 5000);
    batch.shape.table_stride += static_cast<int32_t>(CeilDiv(5000, batch.shape.block_size));
    const Plan plan(batch);  // aborts if the planner's grid is another
    ASSERT_TRUE(plan.IsIntact());
    ExpectCovered(batch, plan.view());
  }
}

// A step of one long request is divided among all multiprocessors.
TEST(FlashInferPlan, ALongContextIsDivided) {
  const PlanBatch batch = PlanBatch::Of(kLlama8B, {1}, {131072});
  const Plan plan(batch);
  const FlashInferGrid grid = FlashInferGrid::Of(batch.shape);
  EXPECT_EQ(grid.tile_rows, 16);
  EXPECT_EQ(grid.blocks, 33);
  EXPECT_GE(plan.view().first_state[1], 32);
}

}  // namespace
}  // namespace pagemill::gpu
