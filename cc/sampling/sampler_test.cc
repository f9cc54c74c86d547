#include "cc/sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <set>

#include "gtest/gtest.h"

namespace pagemill::sampling {
namespace {

using step::Request;
using step::RequestIndex;
using step::SamplingParams;

constexpr int32_t kVocab = 211;

std::shared_ptr<const Request> MakeRequest(SamplingParams params,
                                           std::vector<int32_t> prompt = {1, 2, 3}) {
  auto r = std::make_shared<Request>();
  r->prompt_token_ids = std::move(prompt);
  r->sampling = std::move(params);
  return r;
}

std::vector<float> RandomRow(uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0.0f, 2.0f);
  std::vector<float> row(kVocab);
  for (float& x : row) x = normal(rng);
  return row;
}

class SamplerTest : public testing::Test {
 protected:
  SamplerTest()
      : pool_({.num_threads = 2}), sampler_({.max_num_seqs = 64, .vocab_size = kVocab}, &pool_) {}

  RowOutput RunOne(int32_t slot, const std::vector<float>& row, int32_t prompt_token = -1) {
    std::vector<LogitsRow> rows = {
        {.index = RequestIndex(slot), .logits = row.data(), .prompt_token_id = prompt_token}};
    std::vector<RowOutput> out(1);
    sampler_.Run(rows, out);
    sampler_.CheckIntegrity();
    return out[0];
  }
  int32_t Token(int32_t slot, const std::vector<float>& row) { return RunOne(slot, row).token_id; }
  void Start(int32_t slot, SamplingParams p, std::vector<int32_t> outputs = {}) {
    sampler_.Start(RequestIndex(slot), MakeRequest(std::move(p)), outputs);
  }

  device::ThreadPool pool_;
  Sampler sampler_;
};

int32_t Best(const std::vector<float>& row) {
  return static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
}

TEST_F(SamplerTest, GreedyTakesTheLargest) {
  SamplingParams p;
  p.temperature = 0.0f;
  Start(0, p);
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const auto row = RandomRow(seed);
    EXPECT_EQ(Token(0, row), Best(row));
  }
}

TEST_F(SamplerTest, AFoundTokenIsEnoughForGreedyRows) {
  SamplingParams p;
  p.temperature = 0.0f;
  Start(0, p);
  const ops::RowMaximum found = {.logit = 3.0f, .column = 17}, bad = {.logit = INFINITY};
  EXPECT_TRUE(sampler_.TakeFound(RequestIndex(0), found).ok());
  EXPECT_EQ(sampler_.TakeFound(RequestIndex(0), bad).code(), StatusCode::kInternal);
}

// An executor's draw by RowDrawOf() equals the sampler's and is counted likewise.
TEST_F(SamplerTest, AFoundTokenIsEnoughForDrawnRows) {
  const ops::RowPasses& passes = ops::ChooseRowPasses({});
  SamplingParams low, plain, few;
  low.temperature = 0.004f;  // counts as 0.01
  low.seed = 0x123456789abcdefull;
  plain.temperature = 1.5f;
  few.temperature = 0.9f;
  few.top_k = 6;
  few.top_p = 0.9f;
  few.min_p = 0.01f;
  for (const SamplingParams& limits : {low, plain, few}) {
    Start(0, limits);
    Start(1, limits);
    for (int32_t position = 0; position < 40; ++position) {
      std::vector<float> logits = RandomRow(static_cast<uint32_t>(position));
      for (float& logit : logits) logit *= limits.temperature;
      std::vector<ops::Candidate> storage(logits.size());
      const ops::MaxEntry max = ops::ArgMax(passes, logits);
      const ops::RowMaximum found = {
          .logit = max.logit,
          .column = ops::DrawRow(passes, logits, max, RowDrawOf(limits, position), storage)};
      // An executor finds every other token of slot 1.
      const bool is_found = position % 2 == 0;
      if (is_found) {
        EXPECT_TRUE(sampler_.TakeFound(RequestIndex(1), found).ok());
      }
      for (int32_t slot = 0; slot < (is_found ? 1 : 2); ++slot) {
        const LogitsRow row = {.index = RequestIndex(slot), .logits = logits.data()};
        RowOutput out;
        sampler_.Run({&row, 1}, {&out, 1});
        EXPECT_EQ(out.token_id, found.column) << position;
      }
    }
  }
}

TEST_F(SamplerTest, TellsWhetherAFoundTokenIsEnough) {
  const auto enough = [&](const auto& change) {
    SamplingParams p;
    p.temperature = 0.0f;
    change(p);
    Start(0, p);
    return sampler_.NeedsOnlyToken(RequestIndex(0));
  };
  EXPECT_TRUE(enough([](SamplingParams&) {}));
  EXPECT_TRUE(enough([](SamplingParams& p) { p.temperature = 0.5f; }));
  // Parameters that a greedy request ignores, and parameters of other rows.
  EXPECT_TRUE(enough([](SamplingParams& p) { p.top_k = 4; }));
  EXPECT_TRUE(enough([](SamplingParams& p) { p.top_p = 0.5f; }));
  EXPECT_TRUE(enough([](SamplingParams& p) { p.min_p = 0.1f; }));
  EXPECT_TRUE(enough([](SamplingParams& p) { p.prompt_logprobs = 3; }));
  // Parameters that need logits.
  EXPECT_FALSE(enough([](SamplingParams& p) { p.logprobs = 0; }));
  EXPECT_FALSE(enough([](SamplingParams& p) { p.logprobs = SamplingParams::kAllLogprobs; }));
  EXPECT_FALSE(enough([](SamplingParams& p) { p.min_tokens = 1; }));
  EXPECT_FALSE(enough([](SamplingParams& p) { p.logit_bias = {{5, 1.0f}}; }));
  EXPECT_FALSE(enough([](SamplingParams& p) { p.presence_penalty = 0.5f; }));
  EXPECT_FALSE(enough([](SamplingParams& p) { p.frequency_penalty = 0.5f; }));
  EXPECT_FALSE(enough([](SamplingParams& p) { p.repetition_penalty = 1.1f; }));
  EXPECT_FALSE(enough([](SamplingParams& p) { p.timestamp_begin = 40; }));
}

TEST_F(SamplerTest, AFoundTokenIsEnoughOnceMinTokensExist) {
  SamplingParams p;
  p.temperature = 0.0f;
  p.min_tokens = 2;
  Start(0, p);
  for (int i = 0; i < 2; ++i) {
    EXPECT_FALSE(sampler_.NeedsOnlyToken(RequestIndex(0)));
    (void)Token(0, RandomRow(1));
  }
  EXPECT_TRUE(sampler_.NeedsOnlyToken(RequestIndex(0)));
  Start(1, p, {4, 5});
  EXPECT_TRUE(sampler_.NeedsOnlyToken(RequestIndex(1))) << "resumed";
}

TEST_F(SamplerTest, SameSeedSameTokensWhateverElseRunsAndAfterResuming) {
  SamplingParams p;
  p.seed = 99;
  p.top_p = 0.95f;
  p.presence_penalty = 0.5f;
  p.repetition_penalty = 1.1f;
  Start(5, p);
  std::vector<int32_t> alone;
  for (uint32_t i = 0; i < 30; ++i) alone.push_back(Token(5, RandomRow(i)));
  EXPECT_GT(std::set<int32_t>(alone.begin(), alone.end()).size(), 5u);

  // In a batch of 32 different requests, in another slot.
  Start(17, p);
  for (int32_t s = 20; s < 51; ++s) {
    SamplingParams other;
    other.seed = static_cast<uint64_t>(s);
    Start(s, other);
  }
  for (uint32_t i = 0; i < 30; ++i) {
    const auto row = RandomRow(i);
    std::vector<LogitsRow> rows;
    for (int32_t s = 20; s < 51; ++s)
      rows.push_back({.index = RequestIndex(s), .logits = row.data()});
    rows.insert(rows.begin() + 7, {.index = RequestIndex(17), .logits = row.data()});
    std::vector<RowOutput> out(rows.size());
    sampler_.Run(rows, out);
    EXPECT_EQ(out[7].token_id, alone[i]) << i;
  }

  // Resumed in the middle: penalties and the generator continue.
  Start(3, p, std::vector<int32_t>(alone.begin(), alone.begin() + 12));
  for (uint32_t i = 12; i < 30; ++i) EXPECT_EQ(Token(3, RandomRow(i)), alone[i]) << i;
}

TEST_F(SamplerTest, MinTokensExcludesEndAndStopTokens) {
  auto row = RandomRow(1);
  const int32_t best = Best(row);
  row[(best + 1) % kVocab] = row[best] - 0.001f;
  SamplingParams p;
  p.temperature = 0.0f;
  p.min_tokens = 2;
  p.eos_token_ids = {best};
  p.stop_token_ids = {(best + 1) % kVocab};
  Start(0, p);
  for (int i = 0; i < 2; ++i) {
    const int32_t t = Token(0, row);
    EXPECT_NE(t, best);
    EXPECT_NE(t, (best + 1) % kVocab);
  }
  EXPECT_EQ(Token(0, row), best);
}

TEST_F(SamplerTest, LogitBiasAndPenaltiesMoveTheChoice) {
  const auto row = RandomRow(2);
  const int32_t best = Best(row);
  SamplingParams p;
  p.temperature = 0.0f;
  p.logit_bias = {{7, 100.0f}};
  Start(0, p);
  EXPECT_EQ(Token(0, row), 7);

  SamplingParams q;
  q.temperature = 0.0f;
  q.frequency_penalty = 2.0f;
  Start(1, q);
  std::set<int32_t> seen;
  for (int i = 0; i < 4; ++i) seen.insert(Token(1, row));
  EXPECT_TRUE(seen.count(best));
  EXPECT_GT(seen.size(), 1u);
}

TEST_F(SamplerTest, TimestampsTogetherComeBeforeALessLikelyToken) {
  constexpr int32_t kBegin = 200;
  SamplingParams p;
  p.temperature = 0.0f;
  p.timestamp_begin = kBegin;
  Start(0, p);
  EXPECT_FALSE(sampler_.NeedsOnlyAdjustedToken(RequestIndex(0)));
  std::vector<float> row(kVocab, -9.0f);
  row[50] = 2.0f;
  std::fill(row.begin() + kBegin, row.end(), 0.0f);  // together the logarithm of their number
  const double together = std::log(kVocab - kBegin);
  ASSERT_GT(together, 2.0);
  row[204] = 0.001f;
  EXPECT_EQ(Token(0, row), 204);
  row[50] = static_cast<float>(together) + 0.01f;
  EXPECT_EQ(Token(0, row), 50);

  std::fill(row.begin() + kBegin, row.end(), -std::numeric_limits<float>::infinity());
  EXPECT_EQ(Token(0, row), 50) << "no timestamp may come";
  p.timestamp_begin = 0;
  Start(1, p);
  EXPECT_EQ(Token(1, row), 50) << "there are only timestamps";
  p.timestamp_begin = kBegin;
  p.temperature = 1.0f;
  Start(2, p);
  std::fill(row.begin() + kBegin, row.end(), 2.0f);
  row[50] = 2.0f;
  for (int i = 0; i < 20; ++i) EXPECT_GE(Token(2, row), kBegin);
}

TEST_F(SamplerTest, RepetitionPenaltyCoversThePromptOnce) {
  std::vector<float> row(kVocab, -5.0f);
  row[1] = 4.0f;   // in the prompt {1, 2, 3}
  row[50] = 3.0f;  // not in the prompt
  SamplingParams p;
  p.temperature = 0.0f;
  p.repetition_penalty = 1.5f;  // 4 / 1.5 < 3
  Start(0, p);
  EXPECT_EQ(Token(0, row), 50);
  // Token 50 occurred now as well: 3 / 1.5 = 2 < 4 / 1.5, and token 1 is not penalized twice.
  EXPECT_EQ(Token(0, row), 1);
  EXPECT_EQ(Token(0, row), 1);
}

TEST_F(SamplerTest, LogprobsAreOfTheUnmodifiedDistribution) {
  const auto row = RandomRow(3);
  SamplingParams p;
  p.temperature = 0.0f;
  p.logit_bias = {{9, 50.0f}};
  p.logprobs = 4;
  Start(0, p);
  const RowOutput out = RunOne(0, row);
  ASSERT_TRUE(out.has_logprobs);
  EXPECT_EQ(out.logprobs.token_id, 9);
  double sum = 0.0;
  for (float x : row) sum += std::exp(double{x});
  EXPECT_NEAR(out.logprobs.logprob, row[9] - std::log(sum), 1e-5);
  EXPECT_EQ(out.logprobs.rank,
            1 + std::count_if(row.begin(), row.end(), [&](float x) { return x > row[9]; }));
  ASSERT_EQ(out.logprobs.top.size(), 4u);
  EXPECT_EQ(out.logprobs.top[0].first, Best(row));
  EXPECT_GE(out.logprobs.top[0].second, out.logprobs.top[1].second);
}

TEST_F(SamplerTest, PromptRowsScoreTheGivenTokenAndSampleNothing) {
  SamplingParams p;
  p.seed = 5;
  p.prompt_logprobs = 0;
  Start(0, p);
  Start(1, p);
  const auto row = RandomRow(4);
  const RowOutput out = RunOne(0, row, /*prompt_token=*/11);
  EXPECT_EQ(out.token_id, 11);
  ASSERT_TRUE(out.has_logprobs);
  EXPECT_EQ(out.logprobs.token_id, 11);
  EXPECT_TRUE(out.logprobs.top.empty());
  EXPECT_EQ(Token(0, row), Token(1, row));  // the generator did not advance
}

TEST_F(SamplerTest, WholeVocabularyOfLogprobs) {
  SamplingParams p;
  p.logprobs = SamplingParams::kAllLogprobs;
  Start(0, p);
  const RowOutput out = RunOne(0, RandomRow(5));
  ASSERT_EQ(out.logprobs.top.size(), static_cast<size_t>(kVocab));
  double total = 0.0;
  for (const auto& [id, lp] : out.logprobs.top) total += std::exp(double{lp});
  EXPECT_NEAR(total, 1.0, 1e-5);
}

TEST_F(SamplerTest, NotANumberFailsThatRowOnly) {
  SamplingParams p;
  p.temperature = 0.0f;
  Start(0, p);
  Start(1, p);
  auto bad = RandomRow(6);
  bad[kVocab - 1] = std::nanf("");
  const auto good = RandomRow(7);
  std::vector<LogitsRow> rows = {{.index = RequestIndex(0), .logits = bad.data()},
                                 {.index = RequestIndex(1), .logits = good.data()}};
  std::vector<RowOutput> out(2);
  sampler_.Run(rows, out);
  EXPECT_EQ(out[0].failure.code(), StatusCode::kInternal);
  EXPECT_TRUE(out[1].failure.ok());
  EXPECT_EQ(out[1].token_id, Best(good));
}

TEST_F(SamplerTest, ReleasedSlotStartsAfresh) {
  SamplingParams p;
  p.seed = 1;
  Start(0, p);
  const auto row = RandomRow(8);
  const int32_t first = Token(0, row);
  Token(0, row);
  sampler_.Release(RequestIndex(0));
  Start(0, p);
  EXPECT_EQ(Token(0, row), first);
}

}  // namespace
}  // namespace pagemill::sampling
