#include "cc/runner/draft_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "cc/runner/speculation.h"
#include "cc/runner/testing/context_executor.h"

namespace pagemill::runner {
namespace {

using sampling::HashModel;
using step::BlockId;
using step::RequestIndex;

constexpr int32_t kVocab = 40, kBlockSize = 4, kMaxLen = 640, kMaxDrafts = 6;

engine::RunnerLimits Limits(int32_t num_seqs) {
  engine::RunnerLimits limits;
  limits.max_num_tokens = 64;
  limits.max_num_seqs = num_seqs;
  limits.max_model_len = kMaxLen;
  limits.vocab_size = kVocab;
  limits.block_size = kBlockSize;
  // Those of the target and those of the draft model.
  limits.kv_groups = {{}, {.block_size = 2 * kBlockSize}};
  limits.num_blocks = 1 + num_seqs * kMaxLen / (2 * kBlockSize);
  limits.max_draft_tokens = kMaxDrafts;
  return limits;
}

// Requests whose outputs are known, beside a draft model; drafts are verified against the outputs.
class DraftModelTest : public testing::Test {
 protected:
  explicit DraftModelTest(int32_t num_seqs = 1) { Make(num_seqs); }

  void Make(int32_t num_seqs) {
    limits_ = Limits(num_seqs);
    executor_ = std::make_unique<ContextExecutor>(&model_, limits_.num_blocks * 2 * kBlockSize,
                                                  passes_in_flight_);
    drafts_ = *DraftModel::Create(executor_.get(), &pool_, &clock_, limits_,
                                  {.first_kv_group = 1, .num_tokens = kVocab});
    executor_->on_enqueue = [this](const ops::StepBatch& batch) {
      clock_.AdvanceNanos(
          static_cast<int64_t>(draft_pass_s_ * 1e9 * (0.9 + 0.1 * batch.num_tokens)));
      return OkStatus();
    };
  }

  // The first plan of a request: its prompt, and all pages that it will need.
  step::ScheduledRequest Start(int32_t slot, const std::vector<int32_t>& prompt) {
    auto request = std::make_shared<step::Request>();
    request->prompt_token_ids = prompt;
    request->sampling.temperature = 0.0f;
    request->sampling.max_tokens = 1000;
    step::ScheduledRequest entry;
    entry.index = RequestIndex(slot);
    entry.start = request;
    entry.token_ids = prompt;
    entry.sample = true;
    const int32_t num_pages = kMaxLen / (2 * kBlockSize);
    std::vector<BlockId> pages;
    for (int32_t i = 0; i < num_pages; ++i) pages.push_back(BlockId(1 + slot * num_pages + i));
    entry.new_block_ids = {{}, pages};
    return entry;
  }

  // `size` tokens that the draft model finds most likely, one after the other.
  std::vector<int32_t> Guessed(std::vector<int32_t> text, size_t size) const {
    const size_t begin = text.size();
    while (text.size() < begin + size) {
      const std::vector<float> logits = model_.Logits(text);
      text.push_back(
          static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
    }
    return {text.begin() + static_cast<std::ptrdiff_t>(begin), text.end()};
  }

  static std::vector<int32_t> Random(size_t size, uint32_t seed) {
    std::mt19937 rng(seed);
    std::vector<int32_t> text(size);
    for (int32_t& token : text) token = static_cast<int32_t>(rng() % kVocab);
    return text;
  }

  // Seconds until all requests have their outputs, which are equally long, from the first token on.
  // A step of the target takes `step_seconds(tokens)`.
  template <typename StepSeconds>
  double Run(const std::vector<int32_t>& prompt, const std::vector<std::vector<int32_t>>& outputs,
             const StepSeconds& step_seconds) {
    const auto num = static_cast<int32_t>(outputs.size());
    Make(num);
    Speculation speculation(drafts_.get(), &clock_,
                            {.max_num_seqs = num, .max_draft_tokens = kMaxDrafts}, drafts_.get());
    step::StepPlan plan;
    for (int32_t i = 0; i < num; ++i) {
      plan.scheduled.push_back(Start(i, prompt));
      speculation.Start(RequestIndex(i), *plan.scheduled.back().start, {});
    }
    std::vector<size_t> made(outputs.size());
    int64_t begun = 0;
    for (bool first = true; !plan.scheduled.empty(); first = false) {
      const step::StepResult result = RunStep(&speculation, plan, outputs, step_seconds, &made);
      if (first) begun = clock_.NowNanos();
      plan = NextPlan(result, prompt, outputs, made);
    }
    return SecondsBetween(begun, clock_.NowNanos());
  }

  template <typename StepSeconds>
  step::StepResult RunStep(Speculation* speculation, const step::StepPlan& plan,
                           const std::vector<std::vector<int32_t>>& outputs,
                           const StepSeconds& step_seconds, std::vector<size_t>* made) {
    StepInFlight step;
    step.begun_ns = clock_.NowNanos();
    for (const step::ScheduledRequest& entry : plan.scheduled) {
      step.entries.push_back(MakeStepEntry(entry));
    }
    EXPECT_TRUE(drafts_->Draft(plan).ok());
    step.draft_seconds = drafts_->last_seconds();
    drafts_->CheckIntegrity();
    step::StepResult result;
    int32_t num_tokens = 0;
    for (size_t i = 0; i < plan.scheduled.size(); ++i) {
      num_tokens += plan.scheduled[i].num_tokens();
      step::RequestResult& answer = result.results.emplace_back();
      answer.index = plan.scheduled[i].index;
      const std::vector<int32_t>& output = outputs[answer.index.value()];
      size_t& at = (*made)[answer.index.value()];
      answer.sampled_token_ids.push_back(output[at++]);
      for (int32_t draft : drafts_->token_ids(i)) {
        ++num_drafts_;
        if (answer.sampled_token_ids.back() != draft) break;
        ++num_accepted_;
        answer.sampled_token_ids.push_back(output[at++]);
      }
    }
    clock_.AdvanceNanos(static_cast<int64_t>(step_seconds(num_tokens) * 1e9));
    speculation->EndStep(step, &result);
    return result;
  }

  step::StepPlan NextPlan(const step::StepResult& result, const std::vector<int32_t>& prompt,
                          const std::vector<std::vector<int32_t>>& outputs,
                          const std::vector<size_t>& made) {
    step::StepPlan plan;
    for (const step::RequestResult& answer : result.results) {
      const size_t slot = static_cast<size_t>(answer.index.value());
      const size_t left = outputs[slot].size() - made[slot];
      if (left == 0) continue;
      step::ScheduledRequest& entry = plan.scheduled.emplace_back();
      entry.index = answer.index;
      entry.num_computed_tokens = static_cast<int32_t>(prompt.size() + made[slot]) - 1;
      entry.token_ids = {answer.sampled_token_ids.back()};
      entry.draft_token_ids = answer.draft_token_ids;
      if (entry.draft_token_ids.size() >= left) entry.draft_token_ids.resize(left - 1);
      entry.sample = true;
    }
    return plan;
  }

  const HashModel model_{{.vocab_size = kVocab, .context_tokens = 1 << 20}};
  FakeClock clock_;
  device::ThreadPool pool_{{.num_threads = 1}};
  engine::RunnerLimits limits_;
  std::unique_ptr<ContextExecutor> executor_;
  std::unique_ptr<DraftModel> drafts_;
  int32_t passes_in_flight_ = 1;
  double draft_pass_s_ = 0.004;
  int64_t num_drafts_ = 0;
  int64_t num_accepted_ = 0;
};

double MemoryBound(int32_t tokens) { return 0.01 * (1 + 0.1 * (tokens - 1)); }
double ComputeBound(int32_t tokens) { return 0.01 * tokens; }

// A wrong position, page or token in its passes would change the context, and so the guess.
TEST_F(DraftModelTest, GuessesRightWhereTheTargetIsTheSameModel) {
  const std::vector<int32_t> prompt = Random(50, 1);
  const std::vector<int32_t> output = Guessed(prompt, 300);
  // At 0.4 of a step for each draft the bound is about 1.5 with many.
  EXPECT_LT(Run(prompt, {output}, MemoryBound), 0.75 * 299 * 0.01);
  EXPECT_EQ(num_accepted_, num_drafts_);
  EXPECT_GT(num_accepted_, 150);
}

TEST_F(DraftModelTest, DraftsOfAllRequestsAreMadeTogether) {
  const std::vector<int32_t> prompt = Random(20, 1);
  const std::vector<std::vector<int32_t>> outputs(6, Guessed(prompt, 200));
  const auto seconds = [](int32_t tokens) { return 0.01 * std::max(1.0, tokens / 32.0); };
  draft_pass_s_ = 0.002;
  EXPECT_LT(Run(prompt, outputs, seconds), 0.6 * 199 * 0.01);
  EXPECT_EQ(num_accepted_, num_drafts_);
}

TEST_F(DraftModelTest, APassReadsTheDraftsOfTheOneBeforeWhereTheyAre) {
  const std::vector<int32_t> prompt = Random(100, 1);  // two passes
  const std::vector<std::vector<int32_t>> outputs(3, Guessed(prompt, 100));
  for (const int32_t passes : {2, 3}) {
    passes_in_flight_ = passes;
    num_drafts_ = num_accepted_ = 0;
    Run(prompt, outputs, MemoryBound);
    EXPECT_EQ(num_accepted_, num_drafts_);
    EXPECT_GT(num_accepted_, 100);
    EXPECT_GT(executor_->num_tokens_of_rows, num_drafts_ / 2) << "all but the first of each step";
    EXPECT_GT(executor_->num_overlapping_steps, 0);
  }
}

TEST_F(DraftModelTest, NoPassStaysInFlightAfterAnError) {
  passes_in_flight_ = 2;
  Make(1);
  const std::vector<int32_t> text = Random(10, 7);
  step::StepPlan plan;
  plan.scheduled = {Start(0, text)};
  plan.scheduled[0].draft_token_ids.assign(5, step::kPlaceholderTokenId);
  int32_t left = 3;
  executor_->on_enqueue = [&](const ops::StepBatch&) {
    return left-- > 0 ? OkStatus() : Internal("injected");
  };
  drafts_->Start(RequestIndex(0), text);
  EXPECT_EQ(drafts_->Draft(plan).message(), "injected");
  left = 100;
  drafts_->Start(RequestIndex(0), text);
  ASSERT_TRUE(drafts_->Draft(plan).ok());
  EXPECT_EQ(drafts_->token_ids(0)[4], Guessed(text, 5)[4]);
}

TEST_F(DraftModelTest, TextThatCannotBeGuessedCostsAlmostNothing) {
  for (uint32_t seed = 1; seed <= 10; ++seed) {
    for (const auto seconds : {MemoryBound, ComputeBound}) {
      const double plain = 499 * 0.01;
      EXPECT_LT(Run(Random(100, seed), {Random(500, seed + 100)}, seconds), plain * 1.04);
    }
  }
  EXPECT_GT(num_drafts_, 20);  // it was tried
}

TEST_F(DraftModelTest, PromptsWaitWhileDraftsDoNotPay) {
  const std::vector<int32_t> prompt = Random(100, 3);
  Speculation speculation(drafts_.get(), &clock_,
                          {.max_num_seqs = 1, .max_draft_tokens = kMaxDrafts}, drafts_.get());
  std::vector<size_t> made;
  int64_t prompts_computed = 0;
  for (uint32_t seed = 1; seed <= 10; ++seed) {
    step::StepPlan plan;
    plan.scheduled = {Start(0, prompt)};
    speculation.Start(RequestIndex(0), *plan.scheduled[0].start, {});
    const std::vector<std::vector<int32_t>> outputs = {Random(60, seed)};
    made = {0};
    const int64_t before = executor_->num_tokens;
    step::StepResult result = RunStep(&speculation, plan, outputs, MemoryBound, &made);
    prompts_computed += executor_->num_tokens > before;
    EXPECT_TRUE(seed > 1 || executor_->num_tokens == 100);  // in two passes, of 64 at most
    for (plan = NextPlan(result, prompt, outputs, made); !plan.scheduled.empty();
         plan = NextPlan(result, prompt, outputs, made)) {
      result = RunStep(&speculation, plan, outputs, MemoryBound, &made);
    }
    speculation.Release(RequestIndex(0));
  }
  EXPECT_LT(prompts_computed, 5);
}

TEST_F(DraftModelTest, AHitOnABlockThatItHasNotComputedIsComputed) {
  const std::vector<int32_t> prompt = Random(32, 5);
  step::StepPlan plan;
  plan.scheduled = {Start(0, prompt)};
  drafts_->Start(RequestIndex(0), prompt);
  ASSERT_TRUE(drafts_->Draft(plan).ok());
  EXPECT_EQ(executor_->num_tokens, 0);  // it does not follow
  // The same request again, with 24 tokens cached by the target, and one draft.
  drafts_->Start(RequestIndex(0), prompt);
  plan.scheduled[0].num_computed_tokens = 24;
  plan.scheduled[0].token_ids.erase(plan.scheduled[0].token_ids.begin(),
                                    plan.scheduled[0].token_ids.begin() + 24);
  plan.scheduled[0].draft_token_ids = {step::kPlaceholderTokenId};
  ASSERT_TRUE(drafts_->Draft(plan).ok());
  EXPECT_EQ(executor_->num_tokens, 32);
  EXPECT_EQ(drafts_->token_ids(0)[0], Guessed(prompt, 1)[0]);
  // Now they are there.
  drafts_->Start(RequestIndex(0), prompt);
  ASSERT_TRUE(drafts_->Draft(plan).ok());
  EXPECT_EQ(executor_->num_tokens, 32 + 8);
  EXPECT_EQ(drafts_->token_ids(0)[0], Guessed(prompt, 1)[0]);
}

TEST_F(DraftModelTest, TokensInPlaceOfRejectedDraftsAreComputedAfterStepsWithoutDrafts) {
  std::vector<int32_t> text = Random(10, 7);
  step::StepPlan plan;
  plan.scheduled = {Start(0, text)};
  plan.scheduled[0].draft_token_ids.assign(5, step::kPlaceholderTokenId);
  drafts_->Start(RequestIndex(0), text);
  ASSERT_TRUE(drafts_->Draft(plan).ok());
  const int32_t rejected = drafts_->token_ids(0)[0];
  for (int32_t i = 1; i <= 3; ++i) {
    step::ScheduledRequest next;
    next.index = RequestIndex(0);
    next.num_computed_tokens = static_cast<int32_t>(text.size());
    text.push_back((rejected + i) % kVocab);
    next.token_ids = {text.back()};
    drafts_->Observe(RequestIndex(0), next.token_ids);
    if (i == 3) next.draft_token_ids = {step::kPlaceholderTokenId};
    plan.scheduled = {next};
    ASSERT_TRUE(drafts_->Draft(plan).ok());
  }
  EXPECT_EQ(drafts_->token_ids(0)[0], Guessed(text, 1)[0]);
}

TEST_F(DraftModelTest, AHeadComputesPromptsAtOnceAndFewTokensLater) {
  executor_->states = ContextExecutor::States::kReads;
  drafts_ = *DraftModel::Create(executor_.get(), &pool_, &clock_, limits_,
                                {.first_kv_group = 1, .num_tokens = kVocab, .states_width = 2});
  const RequestIndex index(0);
  const auto follow = [&](const std::vector<int32_t>& tokens) {
    std::vector<float> states;
    for (const int32_t token : tokens) {
      states.insert(states.end(), {static_cast<float>(token), 1.0f});
    }
    const auto count = static_cast<int32_t>(tokens.size());
    const TargetTokens of = {.index = index, .count = count};
    return drafts_->FollowTarget(
        {&of, 1}, TensorView::Dense(states.data(), DType::kF32, {int64_t{count}, 2}));
  };
  for (const size_t prompt : {size_t{DraftModel::kMaxWaiting - 6}, size_t{50}}) {
    executor_->num_tokens = 0;
    std::vector<int32_t> text = Random(prompt, 7);
    step::StepPlan plan;
    plan.scheduled = {Start(0, text)};
    drafts_->Start(index, text);
    ASSERT_TRUE(drafts_->Draft(plan).ok());
    ASSERT_TRUE(follow(text).ok());
    EXPECT_EQ(executor_->num_tokens, prompt > DraftModel::kMaxWaiting ? 50 : 0);
    for (int32_t i = 0; i < 8; ++i) {
      step::ScheduledRequest next;
      next.index = index;
      next.num_computed_tokens = static_cast<int32_t>(text.size());
      next.token_ids = {i};
      drafts_->Observe(index, next.token_ids);
      text.push_back(i);
      plan.scheduled = {next};
      ASSERT_TRUE(drafts_->Draft(plan).ok());
      ASSERT_TRUE(follow({i}).ok());
    }
    EXPECT_EQ(executor_->num_tokens, prompt > DraftModel::kMaxWaiting ? 50 : 17);
    EXPECT_EQ(executor_->num_wrong_states, 0);
  }
  EXPECT_EQ(executor_->num_missing_states, 2) << "in front of the first tokens";
  EXPECT_FALSE(drafts_->FollowTarget(std::vector<TargetTokens>{{index, 0, 1}}, {}).ok());
}

// An image has tokens 4 to 9 of 11, in steps of 7 and 4, and takes 3 positions.
TEST_F(DraftModelTest, AHeadReadsMediaAndTheirPositions) {
  executor_->states = ContextExecutor::States::kReads;
  drafts_ = *DraftModel::Create(executor_.get(), &pool_, &clock_, limits_,
                                {.first_kv_group = 1,
                                 .num_tokens = kVocab,
                                 .states_width = 2,
                                 .media_width = 1,
                                 .grid_positions = true});
  std::vector<int32_t> rows, grid;
  std::vector<float> embeddings;
  executor_->on_enqueue = [&](const ops::StepBatch& batch) {
    rows.assign(batch.media_rows, batch.media_rows + batch.num_media_rows);
    grid.assign(batch.grid_positions, batch.grid_positions + 3 * batch.num_tokens);
    const auto* values = batch.inputs[1].Row<const float>(0);
    embeddings.assign(values, values + batch.num_media_rows);
    return OkStatus();
  };
  const RequestIndex index(0);
  const std::vector<int32_t> text = Random(11, 7);
  step::ScheduledRequest entry = Start(0, text);
  auto features = std::make_shared<step::MediaFeatures>();
  for (int32_t i = 0; i < 6; ++i) {
    features->token_positions.insert(features->token_positions.end(), {0, i / 3, i % 3});
  }
  features->next_position = 3;
  auto request = std::make_shared<step::Request>(*entry.start);
  request->media = {{.content_id = "a", .first_token = 4, .num_tokens = 6, .features = features}};
  entry.start = request;
  drafts_->Start(index, text);
  const auto run = [&](const std::vector<int32_t>& tokens, const std::vector<int32_t>& media,
                       std::vector<float> values) {
    entry.token_ids = tokens;
    step::StepPlan plan;
    plan.scheduled = {entry};
    EXPECT_TRUE(drafts_->Draft(plan).ok());
    const auto count = static_cast<int64_t>(values.size());
    const TensorView read = TensorView::Dense(values.data(), DType::kF32, {count, 1});
    EXPECT_TRUE(drafts_->KeepMedia(plan, media, read).ok());
    std::vector<float> states(2 * tokens.size(), 1.0f);
    const TargetTokens of = {.index = index, .count = static_cast<int32_t>(tokens.size())};
    EXPECT_TRUE(
        drafts_
            ->FollowTarget({&of, 1}, TensorView::Dense(states.data(), DType::kF32, {of.count, 2}))
            .ok());
    entry.num_computed_tokens += of.count;
    entry.start = nullptr;
    entry.new_block_ids.clear();
  };
  run({text.begin(), text.begin() + 7}, {4, 5, 6}, {4, 5, 6});
  run({text.begin() + 7, text.end()}, {0, 1, 2}, {7, 8, 9});
  EXPECT_EQ(executor_->num_steps, 0) << "few tokens wait";
  drafts_->Observe(index, std::vector<int32_t>{20});
  entry.draft_token_ids.assign(2, step::kPlaceholderTokenId);
  step::StepPlan plan;
  entry.token_ids = {20};
  plan.scheduled = {entry};
  std::vector<std::vector<int32_t>> passes;
  const auto record = executor_->on_enqueue;
  executor_->on_enqueue = [&](const ops::StepBatch& batch) {
    const Status status = record(batch);
    passes.push_back(grid);
    if (passes.size() > 1) return status;
    EXPECT_EQ(rows, (std::vector<int32_t>{4, 5, 6, 7, 8, 9}));
    EXPECT_EQ(embeddings, (std::vector<float>{4, 5, 6, 7, 8, 9}));
    return status;
  };
  ASSERT_TRUE(drafts_->Draft(plan).ok());
  ASSERT_EQ(passes.size(), 2u);
  EXPECT_EQ(passes[0],
            (std::vector<int32_t>{0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 4, 4, 5,
                                  4, 4, 6, 4, 5, 4, 4, 5, 5, 4, 5, 6, 7, 7, 7, 8, 8, 8}));
  EXPECT_EQ(passes[1], (std::vector<int32_t>{9, 9, 9}));
  EXPECT_TRUE(rows.empty()) << "a draft is text";
}

TEST_F(DraftModelTest, RefusesLayersThatDropTokens) {
  engine::RunnerLimits limits = Limits(1);
  limits.kv_groups[1].kind = "sliding_window";
  const auto made = DraftModel::Create(executor_.get(), &pool_, &clock_, limits,
                                       {.first_kv_group = 1, .num_tokens = kVocab});
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.status().message().find("\"sliding_window\" layers"), std::string::npos);
}

TEST_F(DraftModelTest, RefusesOptionsThatDoNotFitTheTarget) {
  const auto why_not = [&](const DraftModelOptions& options) {
    const auto made = DraftModel::Create(executor_.get(), &pool_, &clock_, Limits(1), options);
    return made.ok() ? std::string() : made.status().message();
  };
  EXPECT_EQ(why_not({.first_kv_group = 1, .num_tokens = 2, .token_ids = {7, 3}}), "");
  EXPECT_EQ(why_not({.first_kv_group = 2, .num_tokens = kVocab}),
            "the draft model has no KV groups");
  EXPECT_EQ(why_not({.first_kv_group = 1, .num_tokens = kVocab + 1}),
            "num_tokens is 41, it must be from 1 to 40");
  EXPECT_EQ(why_not({.first_kv_group = 1, .num_tokens = 2, .token_ids = {7}}),
            "token_ids has 1 ids for 2 columns");
  EXPECT_EQ(why_not({.first_kv_group = 1, .num_tokens = 2, .token_ids = {7, 40}}),
            "token_ids has 40, which is not one of 40 tokens");
  EXPECT_EQ(why_not({.first_kv_group = 1, .num_tokens = 2, .token_ids = {7, 7}}),
            "token_ids has 7 twice");
  EXPECT_EQ(why_not({.first_kv_group = 1, .num_tokens = 2, .states_width = -1}),
            "states_width is -1, it must be at least 0");
  EXPECT_EQ(why_not({.first_kv_group = 1, .num_tokens = 2, .media_width = 8}),
            "media_width is 8: it must be 0, or more with states_width above 0");
}

}  // namespace
}  // namespace pagemill::runner
