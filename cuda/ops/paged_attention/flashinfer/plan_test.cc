// FlashInfer's planner on the host: random batches are divided completely, each piece of work is
// one block's, and nothing is written behind the arrays.
#include "cuda/ops/paged_attention/flashinfer/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <tuple>
#include <vector>

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

struct Batch {
  FlashInferShape shape;
  std::vector<int32_t> query_start = {0};
  std::vector<int32_t> seq_lens;
};

class Random {
 public:
  int32_t Int(int32_t low, int32_t high) {
    return std::uniform_int_distribution<int32_t>(low, high)(engine_);
  }
  int32_t Choose(std::initializer_list<int32_t> values) {
    return values.begin()[Int(0, static_cast<int32_t>(values.size()) - 1)];
  }

  // A step that decodes, one with prompts, or both.
  Batch NextBatch() {
    Batch batch;
    FlashInferShape& shape = batch.shape;
    shape.kv_heads = Choose({1, 2, 3, 8, 32, 264});
    shape.q_heads = shape.kv_heads * Choose({1, 3, 4, 7, 16});
    shape.head_dim = Choose({64, 128});
    shape.block_size = Choose({8, 16, 32, 128});
    shape.requests = Choose({1, 2, 5, 31, 256});
    const int32_t longest = Choose({1, 20, 3000, 40000});
    const int32_t prompts = Choose({0, 0, 1, 3});
    for (int32_t r = 0; r < shape.requests; ++r) {
      const int32_t tokens = r < prompts ? Int(0, 700) : 1;
      batch.query_start.push_back(batch.query_start.back() + tokens);
      batch.seq_lens.push_back(std::max(tokens, 1) + Int(0, longest));
    }
    shape.tokens = batch.query_start.back();
    shape.table_stride =
        static_cast<int32_t>(CeilDiv(*std::ranges::max_element(batch.seq_lens), shape.block_size)) +
        Int(0, 3);
    return batch;
  }

 private:
  std::mt19937 engine_{1};
};

// A plan in memory of a step of up to `most`, with bytes behind it that nothing may change.
class GuardedPlan {
 public:
  GuardedPlan(const Batch& batch, const FlashInferShape& most, int32_t most_tokens = INT32_MAX)
      : bytes_(static_cast<size_t>(FlashInferPlanView::Bytes(most))),
        memory_(bytes_ + kGuardBytes, kGuard),
        view_(FlashInferPlanView::Of(batch.shape, memory_.data())) {
    PlanFlashInfer(batch.shape, batch.query_start.data(), batch.seq_lens.data(), memory_.data(),
                   most_tokens);
  }
  const FlashInferPlanView& view() const { return view_; }
  bool IsIntact() const {
    return std::all_of(memory_.begin() + static_cast<int64_t>(bytes_), memory_.end(),
                       [](std::byte b) { return b == kGuard; });
  }

 private:
  static constexpr size_t kGuardBytes = 4096;
  static constexpr std::byte kGuard{0xa5};
  const size_t bytes_;
  std::vector<std::byte> memory_;
  const FlashInferPlanView view_;
};

// Every (request, tile of its rows, chunk of its keys) is the work of one block; requests of more
// than `most_tokens` have one chunk, which is no block's.
void ExpectCovered(const Batch& batch, const FlashInferPlanView& plan,
                   int32_t most_tokens = INT32_MAX) {
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
    const int32_t tokens = batch.query_start[r + 1] - batch.query_start[r];
    const int64_t rows = int64_t{tokens} * (shape.q_heads / shape.kv_heads);
    const bool is_left_out = tokens > most_tokens;
    const int64_t chunks =
        grid.splits && !is_left_out ? CeilDiv(batch.seq_lens[r], chunk_tokens) : 1;
    for (int32_t tile = 0; !is_left_out && tile < CeilDiv(rows, grid.tile_rows); ++tile) {
      for (int32_t chunk = 0; chunk < chunks; ++chunk, ++num_pieces) {
        const auto found = blocks.find({r, tile, chunk});
        ASSERT_TRUE(found != blocks.end()) << r << " " << tile << " " << chunk;
        EXPECT_EQ(found->second, 1);
      }
    }
    EXPECT_EQ(plan.first_output[r], states) << r;
    for (int32_t t = batch.query_start[r]; grid.splits && t < batch.query_start[r + 1]; ++t) {
      EXPECT_EQ(plan.first_state[t + 1] - plan.first_state[t], chunks);
    }
    states += tokens * chunks;
    const int32_t pages = plan.first_page[r + 1] - plan.first_page[r];
    EXPECT_EQ((pages - 1) * shape.block_size + plan.last_page_tokens[r], batch.seq_lens[r]);
  }
  EXPECT_EQ(blocks.size(), num_pieces);
  EXPECT_EQ(plan.first_output[shape.requests], states);
  if (grid.splits) {
    EXPECT_LE(states, grid.MaxStates(shape));
  }
}

TEST(FlashInferPlan, CoversEachPieceOnceWithinItsMemory) {
  Random random;
  int splits = 0, whole = 0;
  for (int i = 0; i < 400; ++i) {
    const Batch batch = random.NextBatch();
    if (batch.shape.tokens == 0) continue;
    SCOPED_TRACE(i);
    FlashInferShape most = batch.shape;
    most.tokens += random.Int(0, 500);
    most.requests += random.Int(0, 10);
    const GuardedPlan plan(batch, most);
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
  constexpr int32_t kMostTokens = 127;
  Random random;
  int splits = 0, whole = 0;
  for (int i = 0; i < 400; ++i) {
    const Batch batch = random.NextBatch();
    if (batch.shape.tokens <= kMostTokens) continue;
    SCOPED_TRACE(i);
    const GuardedPlan plan(batch, batch.shape, kMostTokens);
    ASSERT_TRUE(plan.IsIntact());
    ExpectCovered(batch, plan.view(), kMostTokens);
    ASSERT_FALSE(HasFatalFailure());
    ++(FlashInferGrid::Of(batch.shape).splits ? splits : whole);
  }
  EXPECT_GT(splits, 20);
  EXPECT_GT(whole, 20);
}

// Keys of a request that is left out are not divided: the other request's are, among the blocks
// that its rows leave.
TEST(FlashInferPlan, ALongContextBesideAPromptIsDivided) {
  const Batch batch = {.shape = {.tokens = 257,
                                 .requests = 2,
                                 .q_heads = 32,
                                 .kv_heads = 8,
                                 .head_dim = 128,
                                 .block_size = 16,
                                 .table_stride = 4096},
                       .query_start = {0, 256, 257},
                       .seq_lens = {65536, 65536}};
  const GuardedPlan plan(batch, batch.shape, 127);
  EXPECT_EQ(plan.view().first_state[1], 1);
  EXPECT_GE(plan.view().first_state[257] - plan.view().first_state[256], 24);
}

// What a recorded launch depends on is the same for all batches of one size, and the states fit in
// what the largest tiles need.
TEST(FlashInferPlan, SizesFollowFromTheShape) {
  Random random;
  for (int i = 0; i < 100; ++i) {
    Batch batch = random.NextBatch();
    if (batch.shape.tokens == 0) continue;
    const FlashInferGrid grid = FlashInferGrid::Of(batch.shape);
    const FlashInferGrid most = {
        .tile_rows = 128, .blocks = kPlannedBlocks / batch.shape.kv_heads, .splits = true};
    EXPECT_LE(grid.MaxStates(batch.shape), most.MaxStates(batch.shape));
    for (int32_t& seq_len : batch.seq_lens) seq_len += random.Int(0, 5000);
    batch.shape.table_stride += static_cast<int32_t>(CeilDiv(5000, batch.shape.block_size));
    const GuardedPlan plan(batch, batch.shape);  // aborts if the planner's grid is another
    ASSERT_TRUE(plan.IsIntact());
    ExpectCovered(batch, plan.view());
  }
}

// A step of one long request is divided among all multiprocessors.
TEST(FlashInferPlan, ALongContextIsDivided) {
  const Batch batch = {.shape = {.tokens = 1,
                                 .requests = 1,
                                 .q_heads = 32,
                                 .kv_heads = 8,
                                 .head_dim = 128,
                                 .block_size = 16,
                                 .table_stride = 8192},
                       .query_start = {0, 1},
                       .seq_lens = {131072}};
  const GuardedPlan plan(batch, batch.shape);
  const FlashInferGrid grid = FlashInferGrid::Of(batch.shape);
  EXPECT_EQ(grid.tile_rows, 16);
  EXPECT_EQ(grid.blocks, 33);
  EXPECT_GE(plan.view().first_state[1], 32);
}

}  // namespace
}  // namespace pagemill::gpu
