// DraftModel with a program that gives all drafts of a request in one pass.

#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cc/base/clock.h"
#include "cc/device/thread_pool.h"
#include "cc/engine/runner.h"
#include "cc/program/executor.h"
#include "cc/runner/draft_model.h"
#include "cc/step/request.h"
#include "cc/step/step_plan.h"
#include "cc/tensor/tensor_view.h"

namespace pagemill::runner {
namespace {

using step::RequestIndex;

constexpr int32_t kVocab = 50, kHeads = 3;

// A state is the token that it belongs to. Head h gives the token state + token + h, of the rows of
// logits.
class FakeHeads final : public program::Executor {
 public:
  Status Enqueue(const ops::StepBatch& batch) override {
    ++num_passes;
    num_tokens += batch.num_tokens;
    EXPECT_TRUE(batch.kv.empty());
    EXPECT_EQ(batch.argmax_columns, 0);
    rows_ = batch.num_logits_rows;
    for (int32_t head = 0; head < kHeads; ++head) {
      std::vector<float>& logits = logits_[head];
      logits.assign(static_cast<size_t>(rows_ * kVocab), 0.0f);
      for (int32_t row = 0; row < rows_; ++row) {
        const int32_t token = batch.logits_rows[row];
        const auto state = static_cast<int32_t>(*batch.inputs[0].Row<const float>(token));
        const int32_t likely = (state + batch.token_ids[token] + head) % kVocab;
        logits[static_cast<size_t>(row * kVocab + likely)] = 50.0f;
      }
    }
    return OkStatus();
  }
  Status Collect(program::ExecutorOutput* output) override {
    static constexpr std::string_view kNames[] = {"logits", "logits.1", "logits.2"};
    outputs_.clear();
    for (int32_t head = 0; head < num_outputs; ++head) {
      outputs_.push_back({kNames[head], TensorView::Dense(logits_[head].data(), DType::kF32,
                                                          {int64_t{rows_}, kVocab})});
    }
    *output = {};
    output->outputs = outputs_;
    return OkStatus();
  }

  int32_t num_passes = 0, num_tokens = 0;
  int32_t num_outputs = kHeads;

 private:
  int32_t rows_ = 0;
  std::vector<float> logits_[kHeads];
  std::vector<program::OutputView> outputs_;
};

engine::RunnerLimits Limits() {
  engine::RunnerLimits limits;
  limits.max_num_tokens = 64;
  limits.max_num_seqs = 2;
  limits.max_model_len = 128;
  limits.vocab_size = kVocab;
  limits.kv_groups = {{}};  // those of the target
  limits.num_blocks = 8;
  limits.max_draft_tokens = kHeads;
  return limits;
}

class DraftHeadsTest : public testing::Test {
 protected:
  StatusOr<std::unique_ptr<DraftModel>> Make(const DraftModelOptions& options,
                                             const engine::RunnerLimits& limits = Limits()) {
    return DraftModel::Create(&executor_, &pool_, &clock_, limits, options);
  }

  static step::ScheduledRequest Start(int32_t slot, const std::vector<int32_t>& prompt,
                                      float temperature) {
    auto request = std::make_shared<step::Request>();
    request->prompt_token_ids = prompt;
    request->sampling.temperature = temperature;
    step::ScheduledRequest entry;
    entry.index = RequestIndex(slot);
    entry.start = request;
    entry.token_ids = prompt;
    entry.sample = true;
    entry.new_block_ids = {{}};
    return entry;
  }

  // One known token of a text, and drafts behind it.
  static step::ScheduledRequest Decode(int32_t slot, const std::vector<int32_t>& text,
                                       size_t num_drafts) {
    step::ScheduledRequest entry;
    entry.index = RequestIndex(slot);
    entry.num_computed_tokens = static_cast<int32_t>(text.size()) - 1;
    entry.token_ids = {text.back()};
    entry.draft_token_ids.assign(num_drafts, step::kPlaceholderTokenId);
    entry.sample = true;
    return entry;
  }

  // The target has computed the tokens `of` the slot, whose states follow each other from
  // `first_row` on.
  void Follow(int32_t slot, const std::vector<float>& of) {
    std::vector<float> states = of;
    const TargetTokens tokens = {.index = RequestIndex(slot),
                                 .count = static_cast<int32_t>(of.size())};
    ASSERT_TRUE(drafts_
                    ->FollowTarget({&tokens, 1}, TensorView::Dense(states.data(), DType::kF32,
                                                                   {int64_t{tokens.count}, 1}))
                    .ok());
  }

  void Observe(int32_t slot, std::vector<int32_t>* text, const std::vector<int32_t>& tokens) {
    drafts_->Observe(RequestIndex(slot), tokens);
    text->insert(text->end(), tokens.begin(), tokens.end());
  }

  std::vector<int32_t> TokenIds(size_t entry) const {
    const std::span<const int32_t> ids = drafts_->token_ids(entry);
    return {ids.begin(), ids.end()};
  }

  FakeHeads executor_;
  device::ThreadPool pool_{{.num_threads = 1}};
  FakeClock clock_;
  std::unique_ptr<DraftModel> drafts_;
};

TEST_F(DraftHeadsTest, OnePassGivesAllDraftsFromTheStateBeforeTheLastToken) {
  drafts_ =
      *Make({.first_kv_group = 1, .num_tokens = kVocab, .states_width = 1, .num_heads = kHeads});
  std::vector<int32_t> a = {1, 2, 3}, b = {4, 5};
  step::StepPlan plan;
  plan.scheduled = {Start(0, a, 0.0f), Start(1, b, 1.0f)};
  drafts_->Start(RequestIndex(0), a);
  drafts_->Start(RequestIndex(1), b);
  ASSERT_TRUE(drafts_->Draft(plan).ok());
  Follow(0, {1, 2, 3});
  Follow(1, {4, 5});
  EXPECT_EQ(executor_.num_passes, 0) << "prompts are nothing to the heads";
  Observe(0, &a, {10});
  Observe(1, &b, {20});
  EXPECT_EQ(drafts_->num_waiting(RequestIndex(0)), 0);

  plan.scheduled = {Decode(0, a, 3), Decode(1, b, 2)};
  ASSERT_TRUE(drafts_->Draft(plan).ok());
  EXPECT_EQ(TokenIds(0), (std::vector<int32_t>{13, 14, 15}));
  EXPECT_EQ(TokenIds(1), (std::vector<int32_t>{25, 26}));
  EXPECT_EQ(executor_.num_passes, 1);
  EXPECT_EQ(executor_.num_tokens, 2);
  EXPECT_EQ(drafts_->probabilities(0), nullptr) << "greedy";
  ASSERT_NE(drafts_->probabilities(4), nullptr);
  EXPECT_GT(drafts_->probabilities(4)[26], 0.99f);

  // Two drafts of the first request are accepted, none of the second; the second gets no drafts in
  // the step after that.
  Follow(0, {10, 13, 14});
  Follow(1, {20});
  Observe(0, &a, {13, 14, 30});
  Observe(1, &b, {21});
  plan.scheduled = {Decode(0, a, 1), Decode(1, b, 0)};
  ASSERT_TRUE(drafts_->Draft(plan).ok());
  EXPECT_EQ(TokenIds(0), (std::vector<int32_t>{44}));
  EXPECT_EQ(executor_.num_tokens, 3);
  Follow(0, {30});
  Follow(1, {21});
  Observe(1, &b, {22});
  plan.scheduled = {Decode(1, b, 1)};
  ASSERT_TRUE(drafts_->Draft(plan).ok());
  EXPECT_EQ(TokenIds(0), (std::vector<int32_t>{43}));
  drafts_->CheckIntegrity();
}

TEST_F(DraftHeadsTest, FurtherDraftsTakeNoTime) {
  drafts_ =
      *Make({.first_kv_group = 1, .num_tokens = kVocab, .states_width = 1, .num_heads = kHeads});
  const std::vector<int32_t> text = {1, 2};
  step::StepPlan plan;
  plan.scheduled = {Start(0, text, 0.0f)};
  plan.scheduled[0].draft_token_ids.assign(2, step::kPlaceholderTokenId);
  drafts_->Start(RequestIndex(0), text);
  clock_.AdvanceNanos(1000);
  ASSERT_TRUE(drafts_->Draft(plan).ok());
  EXPECT_DOUBLE_EQ(drafts_->Seconds(1, 1, 0), drafts_->Seconds(1, kHeads, 0));
}

TEST_F(DraftHeadsTest, AnOutputThatIsMissingIsAnError) {
  drafts_ =
      *Make({.first_kv_group = 1, .num_tokens = kVocab, .states_width = 1, .num_heads = kHeads});
  executor_.num_outputs = 2;
  const std::vector<int32_t> text = {1, 2};
  step::StepPlan plan;
  plan.scheduled = {Start(0, text, 0.0f)};
  plan.scheduled[0].draft_token_ids.assign(1, step::kPlaceholderTokenId);
  drafts_->Start(RequestIndex(0), text);
  EXPECT_NE(drafts_->Draft(plan).message().find("has logits.2 of fewer tokens"), std::string::npos);
}

TEST_F(DraftHeadsTest, RefusesOptionsThatDoNotFit) {
  const auto why_not = [&](const DraftModelOptions& options,
                           const engine::RunnerLimits& limits = Limits()) {
    const auto made = Make(options, limits);
    return made.ok() ? std::string() : made.status().message();
  };
  EXPECT_EQ(why_not({.first_kv_group = 1, .num_tokens = kVocab, .states_width = 1, .num_heads = 2}),
            "num_heads is 2, it must be at least max_draft_tokens, which is 3");
  const std::string message =
      "num_heads is 3: such a program reads states, no media, and has no KV groups";
  EXPECT_EQ(why_not({.first_kv_group = 1, .num_tokens = kVocab, .num_heads = 3}), message);
  EXPECT_EQ(why_not({.first_kv_group = 1,
                     .num_tokens = kVocab,
                     .states_width = 1,
                     .num_heads = 3,
                     .media_width = 1}),
            message);
  EXPECT_EQ(why_not({.first_kv_group = 0, .num_tokens = kVocab, .states_width = 1, .num_heads = 3}),
            message);
}

}  // namespace
}  // namespace pagemill::runner
