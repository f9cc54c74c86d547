#include "cc/runner/speculation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <span>
#include <vector>

#include "cc/sampling/ngram_proposer.h"
#include "cc/sampling/testing/scripted_proposer.h"

namespace pagemill::runner {
namespace {

using step::RequestIndex;

constexpr int32_t kMaxDrafts = 8;

// Steps of one or more requests whose outputs are known; drafts are verified against them.
class SpeculationTest : public testing::Test {
 protected:
  // Runs `outputs.size()` requests to the ends of their outputs, which are equally long, with steps
  // of `step_seconds(tokens)`. Returns the time.
  template <typename StepSeconds>
  double Run(sampling::DraftProposer* proposer, const std::vector<int32_t>& prompt,
             const std::vector<std::vector<int32_t>>& outputs, const StepSeconds& step_seconds) {
    const auto num = static_cast<int32_t>(outputs.size());
    Speculation speculation(proposer, &clock_,
                            {.max_num_seqs = num, .max_draft_tokens = kMaxDrafts});
    step::Request request;
    request.prompt_token_ids = prompt;
    std::vector<size_t> made(outputs.size(), 1);
    for (int32_t i = 0; i < num; ++i)
      speculation.Start(RequestIndex(i), request, std::span(outputs[i]).first(1));
    step::StepResult result;
    run_begun_ns_ = clock_.NowNanos();
    while (std::any_of(made.begin(), made.end(), [&](size_t n) { return n < outputs[0].size(); })) {
      result = RunStep(&speculation, outputs, std::move(result), step_seconds, &made);
    }
    for (int32_t i = 0; i < num; ++i) speculation.Release(RequestIndex(i));
    return SecondsBetween(run_begun_ns_, clock_.NowNanos());
  }

  template <typename StepSeconds>
  step::StepResult RunStep(Speculation* speculation,
                           const std::vector<std::vector<int32_t>>& outputs,
                           step::StepResult before, const StepSeconds& step_seconds,
                           std::vector<size_t>* made) {
    step::StepPlan plan;
    step::StepResult result;
    int32_t num_tokens = 0;
    for (size_t i = 0; i < outputs.size(); ++i) {
      const size_t left = outputs[i].size() - (*made)[i];
      if (left == 0) continue;
      step::ScheduledRequest& entry = plan.scheduled.emplace_back();
      entry.index = RequestIndex(static_cast<int32_t>(i));
      entry.token_ids = {outputs[i][(*made)[i] - 1]};
      entry.sample = true;
      for (step::RequestResult& last : before.results) {
        if (last.index == entry.index) entry.draft_token_ids = last.draft_token_ids;
      }
      if (entry.draft_token_ids.size() >= left) entry.draft_token_ids.resize(left - 1);
      num_tokens += entry.num_tokens();
      step::RequestResult& answer = result.results.emplace_back();
      answer.index = entry.index;
      do {  // up to and with the first that is no draft
        answer.sampled_token_ids.push_back(outputs[i][(*made)[i]++]);
      } while (answer.sampled_token_ids.size() <= entry.draft_token_ids.size() &&
               answer.sampled_token_ids.back() ==
                   entry.draft_token_ids[answer.sampled_token_ids.size() - 1]);
    }
    StepInFlight step;
    step.begun_ns = overlap_ ? run_begun_ns_ : clock_.NowNanos();
    for (const step::ScheduledRequest& entry : plan.scheduled) {
      step.entries.push_back(MakeStepEntry(entry));
    }
    clock_.AdvanceNanos(static_cast<int64_t>(step_seconds(num_tokens) * 1e9));
    speculation->EndStep(step, &result);
    return result;
  }

  static std::vector<int32_t> RandomText(size_t size, uint32_t seed) {
    std::mt19937 rng(seed);
    std::vector<int32_t> text(size);
    for (int32_t& token : text) token = static_cast<int32_t>(rng() % 50);
    return text;
  }

  FakeClock clock_;
  int64_t run_begun_ns_ = 0;
  bool overlap_ = false;  // steps begin long before those before them end
};

double MemoryBound(int32_t tokens) { return 0.01 * (1 + 0.1 * (tokens - 1)); }
double ComputeBound(int32_t tokens) { return 0.01 * tokens; }

TEST_F(SpeculationTest, TextThatRepeatsThePromptTakesAFractionOfTheTime) {
  sampling::NgramProposer proposer({.max_num_seqs = 1});
  const std::vector<int32_t> prompt = RandomText(400, 1);
  const std::vector<int32_t> output(prompt.begin() + 50, prompt.begin() + 350);
  EXPECT_LT(Run(&proposer, prompt, {output}, MemoryBound), 0.3 * 299 * 0.01);
}

TEST_F(SpeculationTest, TextThatCannotBeGuessedCostsAlmostNothing) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    // The worst proposer: it always has a guess, and is always wrong.
    sampling::ScriptedProposer proposer([](std::span<const int32_t>) { return 77; });
    const double plain = 499 * 0.01;
    for (const auto seconds : {MemoryBound, ComputeBound}) {
      EXPECT_LT(Run(&proposer, {1, 2, 3}, {RandomText(500, seed)}, seconds), plain * 1.035);
    }
  }
}

TEST_F(SpeculationTest, AStepThatWaitsForTheOneBeforeDoesNotTakeLonger) {
  sampling::ScriptedProposer proposer([](std::span<const int32_t> text) {
    return text.size() % 3 == 0 ? 77 : text.back();  // a third is wrong
  });
  double seconds[2];
  for (const bool overlap : {false, true}) {
    overlap_ = overlap;
    seconds[overlap] = Run(&proposer, {5, 5, 5}, {std::vector<int32_t>(300, 5)}, ComputeBound);
  }
  EXPECT_DOUBLE_EQ(seconds[0], seconds[1]);
}

TEST_F(SpeculationTest, NoDraftsWhereTokensCostWhatStepsDo) {
  sampling::ScriptedProposer proposer([](std::span<const int32_t> text) { return text.back(); });
  // Even with perfect guesses there is nothing to gain, and little is lost.
  const std::vector<int32_t> constant(300, 5);
  EXPECT_LT(Run(&proposer, {5, 5, 5}, {constant}, ComputeBound), 299 * 0.01 * 1.035);
}

TEST_F(SpeculationTest, ManyRequestsGetFewerDraftsThanOne) {
  // Up to 16 tokens cost what one does, each further one a tenth of that.
  const auto seconds = [](int32_t tokens) { return 0.01 * std::max(1.0, tokens / 16.0); };
  sampling::ScriptedProposer proposer([](std::span<const int32_t> text) {
    return text.size() % 3 == 0 ? 77 : text.back();  // a third is wrong
  });
  const std::vector<int32_t> constant(300, 5);
  const double alone = Run(&proposer, {5, 5, 5}, {constant}, seconds);
  EXPECT_LT(alone, 0.5 * 299 * 0.01);
  const std::vector<std::vector<int32_t>> many(16, constant);
  EXPECT_LT(Run(&proposer, {5, 5, 5}, many, seconds), 299 * 0.01 * 1.035);
}

}  // namespace
}  // namespace pagemill::runner
