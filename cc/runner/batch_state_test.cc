#include "cc/runner/batch_state.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace pagemill::runner {
namespace {

using step::BlockId;
using step::Request;
using step::RequestIndex;
using step::ScheduledRequest;
using step::StepPlan;

engine::RunnerLimits SmallLimits() {
  engine::RunnerLimits limits;
  limits.max_num_tokens = 40;
  limits.max_num_seqs = 6;
  limits.max_num_logits_rows = 40;
  limits.max_model_len = 30;
  limits.vocab_size = 100;
  limits.num_blocks = 64;
  limits.block_size = 4;
  return limits;
}

std::shared_ptr<const Request> MakeRequest(std::vector<int32_t> prompt) {
  auto request = std::make_shared<Request>();
  request->prompt_token_ids = std::move(prompt);
  return request;
}

ScheduledRequest Entry(int32_t slot, int32_t computed, std::vector<int32_t> tokens,
                       std::vector<int32_t> blocks) {
  ScheduledRequest entry;
  entry.index = RequestIndex(slot);
  entry.num_computed_tokens = computed;
  entry.token_ids = std::move(tokens);
  entry.new_block_ids.emplace_back();
  for (int32_t b : blocks) entry.new_block_ids[0].push_back(BlockId(b));
  return entry;
}

StepPlan PlanOf(std::vector<ScheduledRequest> entries) {
  StepPlan plan;
  plan.scheduled = std::move(entries);
  return plan;
}

// Two requests that begin with blocks 7 and 9, and a plan that says so.
StepPlan PlanWithCommonBlocks(int32_t second_block, int32_t computed) {
  ScheduledRequest a = Entry(0, 8, {30}, {7, 9, 11});
  ScheduledRequest b = Entry(1, computed, {31}, {7, second_block, 12});
  a.start = b.start = MakeRequest({1, 2, 3, 4, 5, 6, 7, 8, 30, 31});
  StepPlan plan = PlanOf({a, b});
  plan.num_common_prefix_blocks = {2};
  return plan;
}

// An item of height x width tokens at first_token, all at a time. With `is_last` false it is a
// frame in front of others of one video.
step::MediaItem GridItem(int32_t first_token, int32_t height, int32_t width, int32_t time = 0,
                         bool is_last = true) {
  auto features = std::make_shared<step::MediaFeatures>();
  features->rows = height * width;
  features->channels = 1;
  features->values.resize(static_cast<size_t>(height * width));
  for (int32_t i = 0; i < height * width; ++i) {
    for (int32_t p : {time, i / width, i % width}) features->token_positions.push_back(p);
    for (int32_t p : {0, i / width, i % width}) features->row_positions.push_back(p);
  }
  features->next_position = is_last ? std::max({height, width, time + 1}) : 0;
  return {"g" + std::to_string(height) + "x" + std::to_string(width), first_token, height * width,
          features};
}

// An item of the second encoder, whose tokens have the positions of text.
step::MediaItem PlainItem(int32_t first_token, int32_t tokens) {
  auto features = std::make_shared<step::MediaFeatures>();
  features->rows = tokens;
  features->channels = 1;
  features->values.resize(static_cast<size_t>(tokens));
  features->encoder = 1;
  return {"p" + std::to_string(tokens), first_token, tokens, features};
}

// The positions of all tokens of a text, from its beginning: what the steps must add up to.
std::vector<int32_t> GridPositionsOf(const Request& request, int32_t tokens) {
  std::vector<int32_t> all;
  int32_t next = 0;
  for (int32_t token = 0; token < tokens;) {
    const auto item = std::find_if(request.media.begin(), request.media.end(),
                                   [&](const auto& m) { return m.first_token == token; });
    if (item == request.media.end() || item->features->token_positions.empty()) {
      all.insert(all.end(), ops::kGridDims, next++);
      ++token;
      continue;
    }
    for (int32_t p : item->features->token_positions) all.push_back(next + p);
    next += item->features->next_position;
    token += item->num_tokens;
  }
  return all;
}

engine::RunnerLimits GridLimits() {
  engine::RunnerLimits limits = SmallLimits();
  limits.media_formats = {{.rows = 12, .channels = 1, .tokens = 12, .any_size = true, .grid = true},
                          {.rows = 4, .channels = 1, .tokens = 4, .any_size = true}};
  return limits;
}

// Texts with items of several sizes, cut into steps anywhere; some begin again in the middle, as
// after preemption with a cached prefix, and run on behind their prompt, as when they decode.
TEST(BatchStateTest, PositionsOfSeveralDimensionsFollowFromTheRequestAlone) {
  std::mt19937 random(11);
  const auto below = [&](int32_t n) { return static_cast<int32_t>(random() % n); };
  BatchState state(GridLimits());
  for (int text = 0; text < 200; ++text) {
    auto request = std::make_shared<Request>();
    request->prompt_token_ids = std::vector<int32_t>(25, 1);
    int32_t at = below(4);
    while (true) {
      step::MediaItem item = below(3) == 0
                                 ? PlainItem(at, 1 + below(4))
                                 : GridItem(at, 1 + below(3), 1 + below(4), below(9), below(4) > 0);
      if (at + item.num_tokens > 25) break;
      at += item.num_tokens + below(3);  // items may touch
      request->media.push_back(std::move(item));
    }
    const std::vector<int32_t> expected = GridPositionsOf(*request, 36);
    bool starts = true;
    for (int32_t computed = below(3) == 0 ? below(20) : 0; computed < 28;) {
      const int32_t count = std::min(1 + below(9), 28 - computed);
      ScheduledRequest entry = Entry(0, computed, std::vector<int32_t>(count, 1), {});
      if (starts) {
        entry.start = request;
        for (int32_t b = 1; b <= 8; ++b) entry.new_block_ids[0].push_back(BlockId(b));
      }
      starts = false;
      entry.draft_token_ids.assign(static_cast<size_t>(below(3)), 2);
      ASSERT_TRUE(state.Apply(PlanOf({entry})).ok());
      const auto first = expected.begin() + computed * ops::kGridDims;
      const int32_t* positions = state.view().grid_positions;
      const int32_t size = entry.num_tokens() * ops::kGridDims;
      ASSERT_TRUE(std::equal(first, first + size, positions)) << "text " << text;
      computed += count;
    }
  }
}

TEST(BatchStateTest, OnlyItemsWithAGridHavePositionsOfSeveralDimensions) {
  BatchState text_only(SmallLimits());
  ScheduledRequest entry = Entry(0, 0, {1, 2, 3}, {7});
  entry.start = MakeRequest({1, 2, 3});
  ASSERT_TRUE(text_only.Apply(PlanOf({entry})).ok());
  EXPECT_EQ(text_only.view().grid_positions, nullptr);

  BatchState grid(GridLimits());
  step::MediaItem item = GridItem(0, 1, 3);
  auto features = std::make_shared<step::MediaFeatures>(*item.features);
  features->token_positions.pop_back();
  item.features = features;
  auto request = std::make_shared<Request>(*entry.start);
  request->media = {item};
  entry.start = request;
  EXPECT_NE(grid.Apply(PlanOf({entry})).message().find("its media item has no positions"),
            std::string::npos);
  entry.start = nullptr;
  EXPECT_NE(grid.Apply(PlanOf({entry})).message().find("it runs but holds no request"),
            std::string::npos);
}

TEST(BatchStateTest, TellsTheBlocksThatAllHaveInCommon) {
  BatchState state(SmallLimits());
  StepPlan plan = PlanWithCommonBlocks(/*second_block=*/9, /*computed=*/8);
  ASSERT_TRUE(state.Apply(plan).ok());
  EXPECT_EQ(state.view().kv[0].num_common_blocks, 2);
  plan.num_common_prefix_blocks.clear();
  for (ScheduledRequest& entry : plan.scheduled) {
    entry.start = nullptr;
    entry.new_block_ids.clear();
  }
  ASSERT_TRUE(state.Apply(plan).ok());
  EXPECT_EQ(state.view().kv[0].num_common_blocks, 0);
}

TEST(BatchStateTest, RefusesCommonBlocksThatARequestDoesNotHaveOrHasNotComputed) {
  for (const StepPlan& plan : {PlanWithCommonBlocks(10, 8), PlanWithCommonBlocks(9, 7)}) {
    BatchState state(SmallLimits());
    const Status status = state.Apply(plan);
    EXPECT_EQ(status.code(), StatusCode::kInternal);
    EXPECT_NE(status.message().find("slot 1: it does not have the 2 blocks"), std::string::npos);
  }
}

// Groups with blocks of 4 and of 8 tokens, of which the second has let its first block go.
TEST(BatchStateTest, EveryGroupHasABlockTableOfItsOwn) {
  engine::RunnerLimits limits = SmallLimits();
  limits.kv_groups = {{.kind = "full"},
                      {.kind = "sliding_window", .block_size = 8, .window_tokens = 5}};
  BatchState state(limits);
  ScheduledRequest a = Entry(3, 0, {10, 11, 12, 13, 14, 15, 16, 17, 18}, {7, 9, 11});
  a.start = MakeRequest({10, 11, 12, 13, 14, 15, 16, 17, 18, 19});
  a.new_block_ids.push_back({BlockId(20), BlockId(21)});
  ASSERT_TRUE(state.Apply(PlanOf({a})).ok());
  ASSERT_EQ(state.view().kv.size(), 2u);
  const ops::KvArrays& large = state.view().kv[1];
  EXPECT_EQ(state.view().kv[0].block_size, 4);
  EXPECT_EQ(large.block_size, 8);
  EXPECT_EQ(large.block_table_stride, 4) << "blocks of 30 tokens";
  EXPECT_EQ(large.block_table[1], 21);
  EXPECT_EQ(large.slot_mapping[7], 20 * 8 + 7);
  EXPECT_EQ(large.slot_mapping[8], 21 * 8);
  EXPECT_EQ(state.view().kv[0].slot_mapping[8], 11 * 4);
  const ops::BatchView second = state.view().View(1);
  EXPECT_EQ(second.num_tokens, 9);
  EXPECT_EQ(second.block_table, large.block_table);
  state.CheckIntegrity();
  // The first group is full, the second has room.
  EXPECT_TRUE(state.Apply(PlanOf({Entry(3, 9, {19}, {})})).ok());
  const Status full = state.Apply(PlanOf({Entry(3, 12, {19}, {})}));
  EXPECT_NE(full.message().find("do not fit in its blocks of 12"), std::string::npos);
}

TEST(BatchStateTest, PagesOfRecentStatesComeBeforeThoseOfBlocks) {
  engine::RunnerLimits limits = SmallLimits();
  limits.kv_groups = {{.kind = "state_space", .recent_states = 3}};
  BatchState state(limits);
  ScheduledRequest a = Entry(3, 0, {10, 11, 12, 13, 14, 15}, {7, 9, 11, 0, 4});
  a.start = MakeRequest({10, 11, 12, 13, 14, 15, 16, 17, 18});
  ASSERT_TRUE(state.Apply(PlanOf({a})).ok());
  const ops::KvArrays& kv = state.view().kv[0];
  EXPECT_EQ(kv.recent_states, 3);
  EXPECT_EQ(kv.block_table_stride, 3 + 8) << "blocks of 30 tokens";
  EXPECT_EQ(std::vector(kv.block_table, kv.block_table + 5), (std::vector{7, 9, 11, 0, 4}));
  EXPECT_EQ(kv.slot_mapping[5], 4 * 4 + 1);
  const Status full = state.Apply(PlanOf({Entry(3, 6, {16, 17, 18}, {})}));
  EXPECT_NE(full.message().find("do not fit in its blocks of 8"), std::string::npos);
}

TEST(BatchStateTest, StatesWithoutCheckpointsNeedNoBlocks) {
  engine::RunnerLimits limits = SmallLimits();
  limits.kv_groups = {{.kind = "state_space",
                       .checkpoints = step::StateCheckpoints::kNone,
                       .recent_states = 1}};
  BatchState state(limits);
  ScheduledRequest a = Entry(3, 0, {10, 11, 12, 13, 14, 15}, {7});
  a.start = MakeRequest({10, 11, 12, 13, 14, 15, 16, 17, 18});
  ASSERT_TRUE(state.Apply(PlanOf({a})).ok());
  const ops::KvArrays& kv = state.view().kv[0];
  EXPECT_EQ(std::vector(kv.block_table, kv.block_table + 3), (std::vector{7, 0, 0}));
  ScheduledRequest b = Entry(2, 0, {10}, {});
  b.start = MakeRequest({10, 11});
  EXPECT_FALSE(state.Apply(PlanOf({b})).ok()) << "it has no page";
}

TEST(BatchStateTest, FillsTheArraysOfAStep) {
  BatchState state(SmallLimits());
  ScheduledRequest a = Entry(2, 0, {10, 11, 12, 13, 14}, {7, 9});
  a.start = MakeRequest({10, 11, 12, 13, 14, 15});
  a.prompt_logprobs = true;
  ScheduledRequest b = Entry(0, 0, {20}, {3});
  b.start = MakeRequest({20});
  b.sample = true;
  ASSERT_TRUE(state.Apply(PlanOf({a, b})).ok());
  const ops::StepBatch& v = state.view();
  const ops::KvArrays& kv = v.kv[0];
  EXPECT_EQ(std::vector(v.token_ids, v.token_ids + 6), (std::vector{10, 11, 12, 13, 14, 20}));
  EXPECT_EQ(std::vector(v.positions, v.positions + 6), (std::vector{0, 1, 2, 3, 4, 0}));
  EXPECT_EQ(std::vector(kv.slot_mapping, kv.slot_mapping + 6),
            (std::vector{28, 29, 30, 31, 36, 12}));
  EXPECT_EQ(std::vector(v.query_start, v.query_start + 3), (std::vector{0, 5, 6}));
  EXPECT_EQ(std::vector(v.seq_lens, v.seq_lens + 2), (std::vector{5, 1}));
  EXPECT_EQ(kv.block_table[0], 7);
  EXPECT_EQ(kv.block_table[kv.block_table_stride], 3);
  EXPECT_EQ(v.num_logits_rows, 6);
  ASSERT_EQ(state.rows().size(), 6u);
  EXPECT_EQ(state.rows()[0].prompt_token_id, 11);
  EXPECT_EQ(state.rows()[4].prompt_token_id, 15);
  EXPECT_EQ(state.rows()[5].entry, 1);
  EXPECT_EQ(state.rows()[5].prompt_token_id, -1);

  // The rest of the prompt: its last token has no successor to score, and samples.
  ScheduledRequest rest = Entry(2, 5, {15}, {});
  rest.prompt_logprobs = true;
  rest.sample = true;
  ASSERT_TRUE(state.Apply(PlanOf({rest})).ok());
  ASSERT_EQ(state.rows().size(), 1u);
  EXPECT_EQ(state.rows()[0].prompt_token_id, -1);
  EXPECT_EQ(state.view().kv[0].slot_mapping[0], 37);
  EXPECT_EQ(state.view().kv[0].block_table[1], 9);
}

TEST(BatchStateTest, APoolingRequestHasNoRows) {
  BatchState state(SmallLimits());
  auto request = std::make_shared<Request>();
  request->prompt_token_ids = {1, 2};
  request->pooling.emplace();
  ScheduledRequest entry = Entry(0, 0, {1, 2}, {1});
  entry.start = request;
  entry.sample = true;
  ASSERT_TRUE(state.Apply(PlanOf({entry})).ok());
  EXPECT_EQ(state.view().num_logits_rows, 0);
}

TEST(BatchStateTest, TheSecondTextOfAPairHasAnotherTokenType) {
  engine::RunnerLimits limits = SmallLimits();
  limits.pooling = true;
  BatchState state(limits);
  const auto start = [](int32_t slot, int32_t second_text_start) {
    auto request = std::make_shared<Request>();
    request->prompt_token_ids = {1, 2, 3, 4};
    request->pooling.emplace();
    request->second_text_start = second_text_start;
    ScheduledRequest entry = Entry(slot, 0, {1, 2, 3, 4}, {slot + 1});
    entry.start = request;
    return entry;
  };
  ASSERT_TRUE(state.Apply(PlanOf({start(0, 3), start(1, 0), start(2, 1), start(3, 4)})).ok());
  const int32_t* types = state.view().token_types;
  EXPECT_EQ(std::vector(types, types + 16),
            (std::vector{0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0}));
  // A later part of the prompt.
  ScheduledRequest part = start(0, 2);
  part.token_ids = {1, 2, 3};
  ASSERT_TRUE(state.Apply(PlanOf({part})).ok());
  ASSERT_TRUE(state.Apply(PlanOf({Entry(0, 3, {4}, {})})).ok());
  EXPECT_EQ(state.view().token_types[0], 1);
}

TEST(BatchStateTest, ModelsThatGenerateHaveNoTokenTypes) {
  BatchState state(SmallLimits());
  ScheduledRequest entry = Entry(0, 0, {1, 2}, {1});
  entry.start = MakeRequest({1, 2});
  ASSERT_TRUE(state.Apply(PlanOf({entry})).ok());
  EXPECT_EQ(state.view().token_types, nullptr);
}

TEST(BatchStateTest, PromptsThatRunInOneStepHaveEnds) {
  engine::RunnerLimits limits = SmallLimits();
  limits.chunked_prefill = false;
  BatchState state(limits);
  ScheduledRequest whole = Entry(0, 0, {1, 2, 3}, {1});
  whole.start = MakeRequest({1, 2, 3});
  // A request that was preempted: its prompt and two tokens behind it.
  ScheduledRequest resumed = Entry(1, 0, {4, 5, 6, 7}, {2});
  resumed.start = MakeRequest({4, 5});
  resumed.resumed_output_token_ids = {6, 7};
  ASSERT_TRUE(state.Apply(PlanOf({whole, resumed})).ok());
  const int32_t* ends = state.view().item_ends;
  EXPECT_EQ(std::vector(ends, ends + 7), (std::vector{3, 3, 3, 2, 2, 0, 0}));
  ASSERT_TRUE(state.Apply(PlanOf({Entry(0, 3, {8}, {})})).ok());
  EXPECT_EQ(state.view().item_ends[0], 0);

  ScheduledRequest divided = Entry(2, 0, {1, 2}, {3});
  divided.start = MakeRequest({1, 2, 3});
  const Status status = state.Apply(PlanOf({divided}));
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_NE(status.message().find("divided at token 2"), std::string::npos);
}

TEST(BatchStateTest, PromptsThatRunInPartsHaveNoEnds) {
  BatchState state(SmallLimits());
  ScheduledRequest entry = Entry(0, 0, {1, 2}, {1});
  entry.start = MakeRequest({1, 2, 3});
  ASSERT_TRUE(state.Apply(PlanOf({entry})).ok());
  EXPECT_EQ(state.view().item_ends, nullptr);
}

TEST(BatchStateTest, RefusesPlansThatContradictThemselves) {
  const auto error = [](ScheduledRequest entry, bool start) {
    BatchState state(SmallLimits());
    if (start) entry.start = MakeRequest({1, 2, 3});
    const Status status = state.Apply(PlanOf({std::move(entry)}));
    EXPECT_EQ(status.code(), StatusCode::kInternal);
    return status.message();
  };
  EXPECT_NE(error(Entry(6, 0, {1}, {1}), true).find("slot 6: the slot does not"),
            std::string::npos);
  EXPECT_NE(error(Entry(-1, 0, {1}, {1}), true).find("slot -1"), std::string::npos);
  EXPECT_NE(error(Entry(0, 0, {1}, {1}), false).find("holds no request"), std::string::npos);
  EXPECT_NE(error(Entry(0, 0, {}, {1}), true).find("no token"), std::string::npos);
  EXPECT_NE(error(Entry(0, 4, {1}, {1}), true).find("5 tokens do not fit"), std::string::npos);
  EXPECT_NE(error(Entry(0, 0, {1}, {64}), true).find("block 64"), std::string::npos);
  EXPECT_NE(error(Entry(0, 0, {1}, std::vector<int32_t>(9, 1)), true).find("max_model_len"),
            std::string::npos);
  ScheduledRequest groups = Entry(0, 0, {1}, {1});
  groups.new_block_ids.emplace_back();
  EXPECT_NE(error(groups, true).find("more than 1 KV groups"), std::string::npos);
  StepPlan released;
  released.released = {RequestIndex(6)};
  EXPECT_FALSE(BatchState(SmallLimits()).Apply(released).ok());
}

TEST(BatchStateTest, TooManyTokensOrRowsFailTheStepOnly) {
  engine::RunnerLimits limits = SmallLimits();
  limits.max_num_tokens = 4;
  limits.max_num_logits_rows = 2;
  BatchState state(limits);
  ScheduledRequest big = Entry(0, 0, {1, 2, 3, 4, 5}, {1, 2});
  big.start = MakeRequest({1, 2, 3, 4, 5});
  ScheduledRequest other = Entry(1, 0, {7}, {3});
  other.start = MakeRequest({7});
  EXPECT_NE(state.Apply(PlanOf({big, other})).message().find("max_num_tokens"), std::string::npos);
  // The other request's diff has been applied.
  ASSERT_TRUE(state.Apply(PlanOf({Entry(1, 1, {8}, {})})).ok());
  EXPECT_EQ(state.view().kv[0].slot_mapping[0], 3 * 4 + 1);
  ScheduledRequest rows = Entry(2, 0, {1, 2, 3}, {4});
  rows.start = MakeRequest({1, 2, 3, 4});
  rows.prompt_logprobs = true;
  EXPECT_NE(state.Apply(PlanOf({rows})).message().find("max_num_logits_rows = 2"),
            std::string::npos);
  state.CheckIntegrity();
}

// What the plans so far mean, kept the plain way.
struct Model {
  struct Slot {
    std::shared_ptr<const Request> request;
    std::vector<int32_t> tokens;  // prompt and outputs
    std::vector<int32_t> blocks;
    int32_t computed = 0;
  };
  std::map<int32_t, Slot> slots;
};

class RandomPlans {
 public:
  explicit RandomPlans(uint32_t seed) : random_(seed) {}

  StepPlan Next(Model& model) {
    StepPlan plan;
    for (auto it = model.slots.begin(); it != model.slots.end();) {
      const bool full = it->second.tokens.size() + 6 > 30;
      if (full || Pick(0, 9) == 0) {
        plan.released.push_back(RequestIndex(it->first));
        it = model.slots.erase(it);
      } else {
        ++it;
      }
    }
    std::vector<int32_t> order = {0, 1, 2, 3, 4, 5};
    if (Pick(0, 2) == 0) std::shuffle(order.begin(), order.end(), random_);
    for (int32_t slot : order) {
      if (Pick(0, 4) == 0) continue;
      plan.scheduled.push_back(model.slots.count(slot) > 0 ? Continue(slot, model.slots[slot])
                                                           : Start(slot, model.slots[slot]));
    }
    return plan;
  }

 private:
  int32_t Pick(int32_t low, int32_t high) {
    return std::uniform_int_distribution<int32_t>(low, high)(random_);
  }

  ScheduledRequest Start(int32_t index, Model::Slot& slot) {
    std::vector<int32_t> prompt;
    for (int32_t n = Pick(1, 12); n > 0; --n) prompt.push_back(Pick(0, 99));
    slot.request = MakeRequest(prompt);
    slot.tokens = prompt;
    ScheduledRequest entry = Continue(index, slot);
    entry.start = slot.request;
    return entry;
  }

  ScheduledRequest Continue(int32_t index, Model::Slot& slot) {
    if (slot.computed == static_cast<int32_t>(slot.tokens.size())) {
      slot.tokens.push_back(Pick(0, 99));
    }
    const int32_t missing = static_cast<int32_t>(slot.tokens.size()) - slot.computed;
    const int32_t count = Pick(1, std::min(missing, 6));
    ScheduledRequest entry = Entry(
        index, slot.computed,
        {slot.tokens.begin() + slot.computed, slot.tokens.begin() + slot.computed + count}, {});
    slot.computed += count;
    while (static_cast<int32_t>(slot.blocks.size()) * 4 < slot.computed) {
      slot.blocks.push_back(Pick(1, 63));
      entry.new_block_ids[0].push_back(BlockId(slot.blocks.back()));
    }
    entry.prompt_logprobs = Pick(0, 1) == 0;
    entry.sample = slot.computed == static_cast<int32_t>(slot.tokens.size());
    return entry;
  }

  std::mt19937 random_;
};

// Rebuilds every array of the step from the model and compares.
void ExpectMatches(const BatchState& state, const StepPlan& plan, const Model& model) {
  const ops::StepBatch& v = state.view();
  const ops::KvArrays& kv = v.kv[0];
  ASSERT_EQ(v.num_requests, static_cast<int32_t>(plan.scheduled.size()));
  int32_t token = 0;
  size_t row = 0;
  for (size_t r = 0; r < plan.scheduled.size(); ++r) {
    const ScheduledRequest& entry = plan.scheduled[r];
    const Model::Slot& slot = model.slots.at(entry.index.value());
    ASSERT_EQ(v.query_start[r], token);
    ASSERT_EQ(v.seq_lens[r], slot.computed);
    for (size_t b = 0; b < slot.blocks.size(); ++b) {
      ASSERT_EQ(kv.block_table[r * static_cast<size_t>(kv.block_table_stride) + b], slot.blocks[b]);
    }
    for (int32_t p = entry.num_computed_tokens; p < slot.computed; ++p, ++token) {
      ASSERT_EQ(v.token_ids[token], slot.tokens[static_cast<size_t>(p)]);
      ASSERT_EQ(v.positions[token], p);
      ASSERT_EQ(kv.slot_mapping[token], slot.blocks[static_cast<size_t>(p / 4)] * 4 + p % 4);
      const size_t next = static_cast<size_t>(p) + 1;
      const bool scores = entry.prompt_logprobs && next < slot.request->prompt_token_ids.size();
      const bool samples = entry.sample && next == slot.tokens.size();
      if (!scores && !samples) continue;
      ASSERT_LT(row, state.rows().size());
      ASSERT_EQ(v.logits_rows[row], token);
      ASSERT_EQ(state.rows()[row].entry, static_cast<int32_t>(r));
      ASSERT_EQ(state.rows()[row].prompt_token_id,
                scores ? slot.request->prompt_token_ids[next] : -1);
      ++row;
    }
  }
  ASSERT_EQ(v.query_start[plan.scheduled.size()], token);
  ASSERT_EQ(v.num_tokens, token);
  ASSERT_EQ(static_cast<size_t>(v.num_logits_rows), row);
  ASSERT_EQ(state.rows().size(), row);
}

TEST(BatchStateTest, RandomPlansMatchARebuild) {
  for (uint32_t seed = 0; seed < 30; ++seed) {
    BatchState state(SmallLimits());
    Model model;
    RandomPlans plans(seed);
    for (int step = 0; step < 200; ++step) {
      const StepPlan plan = plans.Next(model);
      const Status status = state.Apply(plan);
      ASSERT_TRUE(status.ok()) << status.ToString();
      ExpectMatches(state, plan, model);
      if (HasFatalFailure()) FAIL() << "seed " << seed << " step " << step;
      state.CheckIntegrity();
    }
  }
}

}  // namespace
}  // namespace pagemill::runner
