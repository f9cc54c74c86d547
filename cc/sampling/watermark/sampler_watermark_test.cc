// Watermarks in Sampler::Run().
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "cc/device/thread_pool.h"
#include "cc/sampling/sampler.h"
#include "cc/sampling/watermark/watermark.h"
#include "cc/step/request.h"

namespace pagemill::sampling {
namespace {

using step::RequestIndex;
using step::SamplingParams;

constexpr int32_t kVocab = 50;
constexpr WatermarkOptions kOptions = {.key = 77, .context_tokens = 2};

SamplingParams Drawn(uint64_t seed) {
  SamplingParams params;
  params.seed = seed;
  return params;
}

class SamplerWatermarkTest : public testing::Test {
 protected:
  SamplerWatermarkTest()
      : pool_({.num_threads = 1}),
        sampler_({.max_num_seqs = 2, .vocab_size = kVocab, .watermark = Watermark(kOptions)},
                 &pool_) {}

  void Start(const SamplingParams& params, std::span<const int32_t> outputs = {}) {
    auto request = std::make_shared<step::Request>();
    request->prompt_token_ids = {1, 2, 3};
    request->sampling = params;
    sampler_.Start(RequestIndex(0), request, outputs);
  }

  // The next `count` tokens from rows of equal logits.
  std::vector<int32_t> Draw(int count) {
    std::vector<int32_t> tokens;
    for (int i = 0; i < count; ++i) {
      const std::vector<LogitsRow> rows = {{.index = RequestIndex(0), .logits = row_.data()}};
      std::vector<RowOutput> out(1);
      sampler_.Run(rows, out);
      EXPECT_TRUE(out[0].failure.ok());
      tokens.push_back(out[0].token_id);
    }
    return tokens;
  }

  device::ThreadPool pool_;
  Sampler sampler_;
  std::vector<float> row_ = std::vector<float>(kVocab, 0.0f);
};

double LeastOf(const std::vector<double>& numbers) { return *std::ranges::min_element(numbers); }

TEST_F(SamplerWatermarkTest, MarksWhatIsDrawn) {
  const Watermark watermark(kOptions);
  Start(Drawn(1));
  EXPECT_FALSE(sampler_.NeedsOnlyAdjustedToken(RequestIndex(0)));
  const std::vector<int32_t> marked = Draw(40);
  // Of 50 equally likely tokens the one with the largest number is drawn.
  EXPECT_GT(LeastOf(watermark.NumbersOf(marked)), 0.7);
  // The first tokens are drawn by the seed, so texts differ.
  Start(Drawn(2));
  EXPECT_NE(Draw(40), marked);

  SamplingParams unmarked = Drawn(1);
  unmarked.watermarking = false;
  Start(unmarked);
  EXPECT_TRUE(sampler_.NeedsOnlyAdjustedToken(RequestIndex(0)));
  EXPECT_LT(LeastOf(watermark.NumbersOf(Draw(40))), 0.5);
  SamplingParams greedy = Drawn(1);
  greedy.temperature = 0.0f;
  Start(greedy);
  EXPECT_TRUE(sampler_.NeedsOnlyToken(RequestIndex(0)));
}

TEST_F(SamplerWatermarkTest, AResumedRequestGoesOnAsIfItHadNotStopped) {
  Start(Drawn(1));
  const std::vector<int32_t> whole = Draw(40);
  for (const size_t done : {1u, 2u, 17u}) {
    Start(Drawn(1), std::span(whole).first(done));
    const std::vector<int32_t> rest = Draw(40 - static_cast<int>(done));
    EXPECT_TRUE(std::ranges::equal(rest, std::span(whole).subspan(done))) << done;
  }
}

// With two tokens to draw from, contexts repeat soon.
TEST_F(SamplerWatermarkTest, ARepeatedContextIsDrawnByTheSeed) {
  row_[3] = row_[4] = 100.0f;
  Start(Drawn(1));
  const std::vector<int32_t> one = Draw(60);
  Start(Drawn(2));
  const std::vector<int32_t> other = Draw(60);
  EXPECT_NE(std::vector(one.end() - 20, one.end()), std::vector(other.end() - 20, other.end()));
  EXPECT_LE(Watermark(kOptions).NumbersOf(one).size(), 4u);
}

TEST_F(SamplerWatermarkTest, DraftsChangeNoToken) {
  Start(Drawn(1));
  const std::vector<int32_t> tokens = Draw(6);
  // The second draft is wrong; both come with a distribution.
  const std::vector<float> sure(kVocab, 1.0f / kVocab);
  Start(Drawn(1), std::span(tokens).first(3));
  const std::vector<LogitsRow> rows = {{.index = RequestIndex(0),
                                        .logits = row_.data(),
                                        .draft_token_id = tokens[3],
                                        .draft_probabilities = sure.data()},
                                       {.index = RequestIndex(0),
                                        .logits = row_.data(),
                                        .draft_token_id = (tokens[4] + 1) % kVocab,
                                        .draft_probabilities = sure.data()},
                                       {.index = RequestIndex(0), .logits = row_.data()}};
  std::vector<RowOutput> out(rows.size());
  sampler_.Run(rows, out);
  EXPECT_EQ(out[0].token_id, tokens[3]);
  EXPECT_EQ(out[1].token_id, tokens[4]);
  EXPECT_EQ(out[2].token_id, -1);
}

}  // namespace
}  // namespace pagemill::sampling
