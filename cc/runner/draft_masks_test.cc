// DraftModel with a program that gives all drafts of a request in one pass, from masks.

#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cc/base/clock.h"
#include "cc/device/thread_pool.h"
#include "cc/engine/runner.h"
#include "cc/ops/batch_view.h"
#include "cc/program/executor.h"
#include "cc/runner/draft_model.h"
#include "cc/step/request.h"
#include "cc/step/step_plan.h"
#include "cc/tensor/tensor_view.h"

namespace pagemill::runner {
namespace {

using step::BlockId;
using step::RequestIndex;
using Ints = std::vector<int32_t>;

constexpr int32_t kVocab = 60, kBlockSize = 4, kMask = 55, kMaxDrafts = 3, kTokens = 12;

// The token that each row of logits gives: that of the row, plus its position.
class FakeDrafter final : public program::Executor {
 public:
  struct Pass {
    Ints token_ids, positions, query_start, seq_lens, logits_rows;
    Ints marked, queries, item_ends;
    std::vector<float> states;
  };

  explicit FakeDrafter(FakeClock* clock) : clock_(clock) {}

  Status Enqueue(const ops::StepBatch& batch) override {
    clock_->AdvanceNanos(1000);
    EXPECT_EQ(batch.text_rows == nullptr, batch.item_ends == nullptr);
    const auto copy = [](const int32_t* values, int32_t count) {
      return values == nullptr ? Ints() : Ints(values, values + count);
    };
    const int32_t num = batch.num_tokens;
    Pass& pass = passes.emplace_back();
    pass = {.token_ids = copy(batch.token_ids, num),
            .positions = copy(batch.positions, num),
            .query_start = copy(batch.query_start, batch.num_requests + 1),
            .seq_lens = copy(batch.seq_lens, batch.num_requests),
            .logits_rows = copy(batch.logits_rows, batch.num_logits_rows),
            .marked = copy(batch.media_rows, batch.num_media_rows),
            .queries = copy(batch.text_rows, batch.num_text_rows),
            .item_ends = copy(batch.item_ends, num),
            .states = {}};
    if (!batch.inputs.empty()) {
      for (int64_t row = 0; row < batch.inputs[0].shape[0]; ++row) {
        pass.states.push_back(*batch.inputs[0].Row<const float>(row));
      }
    }
    logits_.assign(static_cast<size_t>(batch.num_logits_rows * kVocab), 0.0f);
    for (int32_t row = 0; row < batch.num_logits_rows; ++row) {
      const int32_t token = batch.logits_rows[row];
      const int32_t likely = (batch.token_ids[token] + batch.positions[token]) % kVocab;
      logits_[static_cast<size_t>(row * kVocab + likely)] = 50.0f;
    }
    rows_ = batch.num_logits_rows;
    return OkStatus();
  }
  Status Collect(program::ExecutorOutput* output) override {
    outputs_ = {
        {"logits", TensorView::Dense(logits_.data(), DType::kF32, {int64_t{rows_}, kVocab})}};
    *output = {};
    output->outputs = outputs_;
    return OkStatus();
  }

  std::vector<Pass> passes;

 private:
  FakeClock* const clock_;
  int32_t rows_ = 0;
  std::vector<float> logits_;
  std::vector<program::OutputView> outputs_;
};

engine::RunnerLimits Limits() {
  engine::RunnerLimits limits;
  limits.max_num_tokens = kTokens;
  limits.max_num_seqs = 3;
  limits.max_model_len = 64;
  limits.vocab_size = kVocab;
  limits.block_size = kBlockSize;
  limits.kv_groups = {{}, {}};  // those of the target and of the drafter
  limits.num_blocks = 1 + 3 * 16;
  limits.max_draft_tokens = kMaxDrafts;
  return limits;
}

DraftModelOptions Options(DraftQueries queries, int32_t states_width = 0) {
  return {.first_kv_group = 1,
          .num_tokens = kVocab,
          .states_width = states_width,
          .queries = queries,
          .mask_token_id = kMask};
}

class DraftMasksTest : public testing::Test {
 protected:
  StatusOr<std::unique_ptr<DraftModel>> Make(const DraftModelOptions& options,
                                             const engine::RunnerLimits& limits = Limits()) {
    return DraftModel::Create(&executor_, &pool_, &clock_, limits, options);
  }

  // The first plan of a request with all blocks that it needs, of which those of the first
  // `num_cached` tokens are those of slot `of`.
  step::ScheduledRequest Start(int32_t slot, const Ints& prompt, int32_t num_cached = 0,
                               int32_t of = 0) {
    drafts_->Start(RequestIndex(slot), prompt);
    auto request = std::make_shared<step::Request>();
    request->prompt_token_ids = prompt;
    request->sampling.temperature = 0.0f;
    step::ScheduledRequest entry;
    entry.index = RequestIndex(slot);
    entry.start = request;
    entry.num_computed_tokens = num_cached;
    entry.token_ids.assign(prompt.begin() + num_cached, prompt.end());
    entry.sample = true;
    std::vector<BlockId> blocks;
    for (int32_t i = 0; i < 16; ++i) {
      blocks.push_back(BlockId(1 + 16 * (i * kBlockSize < num_cached ? of : slot) + i));
    }
    entry.new_block_ids = {{}, blocks};
    return entry;
  }

  // One known token of a text, and drafts behind it.
  static step::ScheduledRequest Decode(int32_t slot, const Ints& text, size_t num_drafts) {
    step::ScheduledRequest entry;
    entry.index = RequestIndex(slot);
    entry.num_computed_tokens = static_cast<int32_t>(text.size()) - 1;
    entry.token_ids = {text.back()};
    entry.draft_token_ids.assign(num_drafts, step::kPlaceholderTokenId);
    entry.sample = true;
    return entry;
  }

  // The target has computed tokens of the slot whose states are `of`.
  void Follow(int32_t slot, std::vector<float> of) {
    const TargetTokens tokens = {.index = RequestIndex(slot),
                                 .count = static_cast<int32_t>(of.size())};
    const TensorView states = TensorView::Dense(of.data(), DType::kF32, {int64_t{tokens.count}, 1});
    ASSERT_TRUE(drafts_->FollowTarget({&tokens, 1}, states).ok());
  }

  void Observe(int32_t slot, Ints* text, const Ints& tokens) {
    drafts_->Observe(RequestIndex(slot), tokens);
    text->insert(text->end(), tokens.begin(), tokens.end());
    drafts_->CheckIntegrity();
  }

  void Draft(std::vector<step::ScheduledRequest> entries) {
    executor_.passes.clear();
    step::StepPlan plan;
    plan.scheduled = std::move(entries);
    ASSERT_TRUE(drafts_->Draft(plan).ok());
    drafts_->CheckIntegrity();
  }

  Ints TokenIds(size_t entry) const {
    const std::span<const int32_t> ids = drafts_->token_ids(entry);
    return {ids.begin(), ids.end()};
  }

  FakeClock clock_;
  FakeDrafter executor_{&clock_};
  device::ThreadPool pool_{{.num_threads = 1}};
  std::unique_ptr<DraftModel> drafts_;
};

TEST_F(DraftMasksTest, MasksStandBehindTheLastKnownToken) {
  drafts_ = *Make(Options(DraftQueries::kMasks));
  Ints a = {1, 2, 3}, b = {4};
  Draft({Start(0, a), Start(1, b)});
  EXPECT_TRUE(executor_.passes.empty()) << "no drafts";
  Observe(0, &a, {10});
  Observe(1, &b, {20});
  Draft({Decode(0, a, 3), Decode(1, b, 1)});
  ASSERT_EQ(executor_.passes.size(), 1u);
  const FakeDrafter::Pass& pass = executor_.passes[0];
  EXPECT_EQ(pass.token_ids, (Ints{1, 2, 3, 10, kMask, kMask, 4, 20}));
  EXPECT_EQ(pass.positions, (Ints{0, 1, 2, 3, 4, 5, 0, 1}));
  EXPECT_EQ(pass.query_start, (Ints{0, 6, 8}));
  EXPECT_EQ(pass.seq_lens, (Ints{6, 2}));
  EXPECT_EQ(pass.logits_rows, (Ints{3, 4, 5, 7}));
  EXPECT_TRUE(pass.marked.empty());
  EXPECT_EQ(TokenIds(0), (Ints{13, kMask + 4, (kMask + 5) % kVocab}));
  EXPECT_EQ(TokenIds(1), (Ints{21}));
  EXPECT_EQ(drafts_->num_caught_up(RequestIndex(0)), 3);

  // The KV of masks is not that of the accepted drafts.
  Observe(0, &a, {13, 59, 7});
  EXPECT_EQ(drafts_->num_waiting(RequestIndex(0)), 2);
  Draft({Decode(0, a, 2)});
  ASSERT_EQ(executor_.passes.size(), 1u);
  EXPECT_EQ(executor_.passes[0].token_ids, (Ints{13, 59, 7, kMask}));
  EXPECT_EQ(executor_.passes[0].positions, (Ints{4, 5, 6, 7}));
  EXPECT_EQ(TokenIds(0), (Ints{13, (kMask + 7) % kVocab}));
}

TEST_F(DraftMasksTest, MasksOfAHeadAreMarked) {
  drafts_ = *Make(Options(DraftQueries::kMasks, /*states_width=*/1));
  Ints a = {1, 2};
  Draft({Start(0, a)});
  Follow(0, {1, 2});
  Observe(0, &a, {10});
  Draft({Decode(0, a, 3)});
  ASSERT_EQ(executor_.passes.size(), 1u);
  const FakeDrafter::Pass& pass = executor_.passes[0];
  EXPECT_EQ(pass.token_ids, (Ints{1, 2, 10, kMask, kMask}));
  EXPECT_EQ(pass.states, (std::vector<float>{0, 1, 2, 0, 0}));
  EXPECT_EQ(pass.marked, (Ints{3, 4}));
  EXPECT_TRUE(pass.item_ends.empty());
}

TEST_F(DraftMasksTest, ABlockReadsTheStatesOfTokensBeforeIt) {
  drafts_ = *Make(Options(DraftQueries::kBlock, /*states_width=*/1));
  Ints a = {1, 2, 3}, b = {4};
  Draft({Start(0, a), Start(1, b)});
  Follow(0, {1, 2, 3});
  Follow(1, {4});
  Observe(0, &a, {10});
  Observe(1, &b, {20});
  Draft({Decode(0, a, 2), Decode(1, b, 1)});
  ASSERT_EQ(executor_.passes.size(), 1u);
  const FakeDrafter::Pass* pass = &executor_.passes[0];
  EXPECT_EQ(pass->token_ids, (Ints{1, 2, 3, 10, kMask, kMask, 4, 20, kMask}));
  EXPECT_EQ(pass->positions, (Ints{0, 1, 2, 3, 4, 5, 0, 1, 2}));
  EXPECT_EQ(pass->states, (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(pass->marked, (Ints{0, 1, 2, 6}));
  EXPECT_EQ(pass->queries, (Ints{3, 4, 5, 7, 8}));
  EXPECT_EQ(pass->item_ends, (Ints{0, 0, 0, 6, 6, 6, 0, 3, 3}));
  EXPECT_EQ(pass->logits_rows, (Ints{4, 5, 8}));
  EXPECT_EQ(TokenIds(0), (Ints{kMask + 4, (kMask + 5) % kVocab}));
  EXPECT_EQ(TokenIds(1), (Ints{kMask + 2}));

  // One draft is accepted: the last known token and that draft are read as states now.
  Follow(0, {10, 59});
  Follow(1, {20});
  Observe(0, &a, {59, 30});
  Observe(1, &b, {21});
  EXPECT_EQ(drafts_->num_waiting(RequestIndex(0)), 2);
  Draft({Decode(0, a, 3), Decode(1, b, 0)});
  ASSERT_EQ(executor_.passes.size(), 1u);
  pass = &executor_.passes[0];
  EXPECT_EQ(pass->token_ids, (Ints{10, 59, 30, kMask, kMask, kMask}));
  EXPECT_EQ(pass->positions, (Ints{3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(pass->states, (std::vector<float>{10, 59}));
  EXPECT_EQ(pass->queries, (Ints{2, 3, 4, 5}));
}

TEST_F(DraftMasksTest, PassesAreDividedInFrontOfTheLastKnownToken) {
  drafts_ = *Make(Options(DraftQueries::kBlock, /*states_width=*/1));
  // 10 and 1 tokens with blocks of 4: the first block does not fit behind its tokens.
  Ints a(9, 1), b = {2};
  Draft({Start(0, a), Start(1, b)});
  Follow(0, {1, 2, 3, 4, 5, 6, 7, 8, 9});
  Follow(1, {50});
  Observe(0, &a, {10});
  Observe(1, &b, {20});
  Draft({Decode(0, a, 3), Decode(1, b, 3)});
  ASSERT_EQ(executor_.passes.size(), 2u);
  EXPECT_EQ(executor_.passes[0].states, (std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_TRUE(executor_.passes[0].queries.empty());
  EXPECT_TRUE(executor_.passes[0].logits_rows.empty());
  EXPECT_EQ(executor_.passes[1].token_ids,
            (Ints{10, kMask, kMask, kMask, 2, 20, kMask, kMask, kMask}));
  EXPECT_EQ(executor_.passes[1].marked, (Ints{4}));
  EXPECT_EQ(executor_.passes[1].item_ends, (Ints{13, 13, 13, 13, 0, 5, 5, 5, 5}));
  EXPECT_EQ(TokenIds(0), (Ints{(kMask + 10) % kVocab, (kMask + 11) % kVocab, 7}));
}

TEST_F(DraftMasksTest, BlocksOfTheCacheHaveNoMasks) {
  for (const DraftQueries queries : {DraftQueries::kMasks, DraftQueries::kBlock}) {
    const bool block = queries == DraftQueries::kBlock;
    drafts_ = *Make(Options(queries, block ? 1 : 0));
    Ints a = {1, 2, 3, 4, 5, 6};
    Draft({Start(0, a)});
    if (block) Follow(0, {1, 2, 3, 4, 5, 6});
    Observe(0, &a, {10});
    Draft({Decode(0, a, 3)});  // the seventh token; masks up to the tenth
    if (block) Follow(0, {10, 11});
    Observe(0, &a, {11, 12});
    // Another request hits two blocks of the cache, of which the first is complete.
    Ints b = {1, 2, 3, 4, 5, 6, 10, 11, 30};
    Draft({Start(1, b, /*num_cached=*/8, /*of=*/0)});
    if (block) Follow(1, {30});
    Observe(1, &b, {31});
    Draft({Decode(1, b, 1)});
    ASSERT_EQ(executor_.passes.size(), 1u);
    EXPECT_EQ(executor_.passes[0].positions.front(), kBlockSize);
    Ints read = {5, 6, 10, 11, 30, 31};
    if (block) read.push_back(kMask);
    EXPECT_EQ(executor_.passes[0].token_ids, read);
    // States of cached tokens are gone.
    if (block) {
      EXPECT_EQ(executor_.passes[0].states, (std::vector<float>{0, 0, 0, 0, 30}));
    }
  }
}

TEST_F(DraftMasksTest, APromptIsFollowedWithItsOwnStates) {
  drafts_ = *Make(Options(DraftQueries::kBlock, /*states_width=*/1));
  Ints a(20, 1);
  std::vector<float> states;
  for (int32_t i = 0; i < 20; ++i) states.push_back(static_cast<float>(100 + i));
  Draft({Start(0, a)});
  Follow(0, states);
  ASSERT_EQ(executor_.passes.size(), 2u) << "12 tokens a pass";
  EXPECT_EQ(executor_.passes[1].states.front(), 112);
  EXPECT_EQ(executor_.passes[1].states.back(), 119);
  EXPECT_EQ(executor_.passes[1].marked.size(), 8u);
  Observe(0, &a, {10});
  Draft({Decode(0, a, 3)});
  ASSERT_EQ(executor_.passes.size(), 1u);
  EXPECT_EQ(executor_.passes[0].token_ids, (Ints{10, kMask, kMask, kMask}));
}

TEST_F(DraftMasksTest, AMaskMayBeUnknownToTheTarget) {
  DraftModelOptions options = Options(DraftQueries::kMasks);
  options.num_tokens = 50;  // less than the mask
  drafts_ = *Make(options);
  Ints a = {1, 52};
  Draft({Start(0, a)});
  Observe(0, &a, {3});
  Draft({Decode(0, a, 2)});
  EXPECT_EQ(executor_.passes[0].token_ids, (Ints{1, 0, 3, kMask}));
}

TEST_F(DraftMasksTest, MoreDraftsCostTokensAndNoPasses) {
  drafts_ = *Make(Options(DraftQueries::kMasks));
  Ints a = {1};
  Draft({Start(0, a)});
  Observe(0, &a, {3});
  Draft({Decode(0, a, 2)});
  EXPECT_GT(drafts_->Seconds(1, 1, 0), 0.0);
  EXPECT_LT(drafts_->Seconds(1, kMaxDrafts, 0), 2 * drafts_->Seconds(1, 1, 0));
}

TEST_F(DraftMasksTest, RefusesOptionsThatDoNotFit) {
  const auto why_not = [&](const DraftModelOptions& options,
                           const engine::RunnerLimits& limits = Limits()) {
    const auto made = Make(options, limits);
    return made.ok() ? std::string() : made.status().message();
  };
  DraftModelOptions options = Options(DraftQueries::kMasks);
  options.mask_token_id = -1;
  EXPECT_EQ(why_not(options), "mask_token_id is -1, it must be at least 0");
  engine::RunnerLimits limits = Limits();
  limits.max_num_tokens = kMaxDrafts;
  EXPECT_EQ(why_not(Options(DraftQueries::kMasks), limits),
            "max_num_tokens is 3, a pass with masks for 3 drafts needs more");
  const std::string message =
      "a block drafter reads masks in place of media and has no heads; one whose queries see each "
      "other reads states";
  EXPECT_EQ(why_not(Options(DraftQueries::kBlock)), message);
  options = Options(DraftQueries::kMasks, /*states_width=*/1);
  options.media_width = 1;
  EXPECT_EQ(why_not(options), message);
}

}  // namespace
}  // namespace pagemill::runner
