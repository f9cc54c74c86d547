#include "cc/capi/pagemill.h"

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace {

constexpr int kVocab = 53;
constexpr int kHidden = 32;

// A model without attention: the next token is the one whose row of W has the largest product with
// the row of the last token.
class BigramModel {
 public:
  BigramModel() : weights_(kVocab * kHidden) {
    std::mt19937 rng(11);
    std::normal_distribution<float> normal;
    for (float& w : weights_) w = normal(rng);
    // Without this every token would be followed by itself.
    for (int t = 0; t < kVocab; ++t) shifted_.push_back((t * 7 + 3) % kVocab);
  }

  // Expects W [vocab, hidden] as the embedding and its rows in shifted order as the head.
  std::string ProgramText() const {
    std::vector<float> both = weights_;
    for (int t = 0; t < kVocab; ++t) {
      const float* row = weights_.data() + shifted_[t] * kHidden;
      both.insert(both.end(), row, row + kHidden);
    }
    const size_t bytes = both.size() * sizeof(float);
    std::string text = "pagemill-program 1\nfile 0 @\n";
    text += "weight table f32 53,32 0 0\n";
    text += "weight head f32 53,32 0 " + std::to_string(kVocab * kHidden * 4) + "\n";
    text += "input token_ids i32 T\ninput logits_rows i32 L\n";
    text += "value x f32 T,32\nvalue last f32 L,32\nvalue y f32 L,53\n";
    text += "op embedding token_ids,table -> x scale=1\n";
    text += "op select_rows x,logits_rows -> last\n";
    text += "op linear last,head,- -> y\noutput logits y\n";
    char word[20];
    std::snprintf(word, sizeof(word), "%zu", bytes);
    text += "constants " + std::string(word) + "\n";
    for (float w : both) {
      uint32_t bits;
      std::memcpy(&bits, &w, sizeof(bits));
      for (int i = 0; i < 4; ++i) {  // little endian
        std::snprintf(word, sizeof(word), "%02x", (bits >> (8 * i)) & 0xff);
        text += word;
      }
    }
    return text + "\n";
  }

  // Greedy successor: row shifted_[t] of W is most like row `token` when shifted_[t] == token.
  int32_t Next(int32_t token) const {
    int32_t best = 0;
    double best_logit = -1e30;
    for (int t = 0; t < kVocab; ++t) {
      double logit = 0;
      for (int i = 0; i < kHidden; ++i) {
        logit += double{weights_[token * kHidden + i]} * weights_[shifted_[t] * kHidden + i];
      }
      if (logit > best_logit) {
        best_logit = logit;
        best = t;
      }
    }
    return best;
  }

 private:
  std::vector<float> weights_;
  std::vector<int> shifted_;
};

class CapiTest : public testing::Test {
 protected:
  void SetUp() override {
    path_ = testing::TempDir() + "/bigram.program";
    std::ofstream(path_) << model_.ProgramText();
    pagemill_engine_options_init(&options_);
    options_.program_path = path_.c_str();
    options_.num_threads = 1;
    options_.max_model_len = 64;
  }
  void TearDown() override { pagemill_engine_destroy(engine_); }

  void Create() {
    ASSERT_EQ(pagemill_engine_create(&options_, &engine_), PAGEMILL_OK) << pagemill_last_error();
  }
  // Reads until the request ends; its tokens.
  std::vector<int32_t> Finish(int32_t* finish_reason) {
    std::vector<int32_t> tokens;
    pagemill_output out;
    do {
      if (pagemill_engine_next(engine_, 20.0, &out) != PAGEMILL_OK) break;
      tokens.insert(tokens.end(), out.token_ids, out.token_ids + out.num_tokens);
      *finish_reason = out.finish_reason;
    } while (out.finish_reason == PAGEMILL_NOT_FINISHED);
    return tokens;
  }

  BigramModel model_;
  std::string path_;
  pagemill_engine_options options_;
  pagemill_engine* engine_ = nullptr;
};

TEST_F(CapiTest, GeneratesTheModelsTokens) {
  Create();
  pagemill_sampling_params params;
  pagemill_sampling_params_init(&params);
  params.temperature = 0.0f;
  params.max_tokens = 20;
  const std::vector<int32_t> prompt = {5, 9, 14};
  ASSERT_EQ(pagemill_engine_submit(engine_, 7, prompt.data(), prompt.size(), &params), PAGEMILL_OK)
      << pagemill_last_error();
  int32_t reason = -1;
  const std::vector<int32_t> tokens = Finish(&reason);
  EXPECT_EQ(reason, PAGEMILL_FINISH_LENGTH);
  std::vector<int32_t> want = {model_.Next(14)};
  while (want.size() < 20) want.push_back(model_.Next(want.back()));
  EXPECT_EQ(tokens, want);

  pagemill_stats stats;
  ASSERT_EQ(pagemill_engine_stats(engine_, &stats), PAGEMILL_OK);
  EXPECT_EQ(stats.num_running, 0u);
  EXPECT_EQ(stats.num_used_blocks, 0u);
}

TEST_F(CapiTest, StopTokenEndsTheRequest) {
  Create();
  pagemill_sampling_params params;
  pagemill_sampling_params_init(&params);
  params.temperature = 0.0f;
  params.max_tokens = 50;
  const int32_t prompt = 1;
  const int32_t stop = model_.Next(model_.Next(1));
  params.stop_token_ids = &stop;
  params.num_stop_token_ids = 1;
  ASSERT_EQ(pagemill_engine_submit(engine_, 1, &prompt, 1, &params), PAGEMILL_OK);
  int32_t reason = -1;
  EXPECT_EQ(Finish(&reason).back(), stop);
  EXPECT_EQ(reason, PAGEMILL_FINISH_STOP);
}

TEST_F(CapiTest, AbortEndsTheRequest) {
  Create();
  pagemill_sampling_params params;
  pagemill_sampling_params_init(&params);
  params.max_tokens = 60;
  const int32_t prompt = 1;
  ASSERT_EQ(pagemill_engine_submit(engine_, 1, &prompt, 1, &params), PAGEMILL_OK);
  EXPECT_EQ(pagemill_engine_abort(engine_, 1), PAGEMILL_OK);
  EXPECT_EQ(pagemill_engine_abort(engine_, 999), PAGEMILL_OK);  // unknown ids are ignored
  int32_t reason = -1;
  Finish(&reason);
  // The request may have been finished before the abort reached the engine.
  EXPECT_TRUE(reason == PAGEMILL_FINISH_ABORT || reason == PAGEMILL_FINISH_LENGTH) << reason;
}

TEST_F(CapiTest, RefusalsHaveACodeAndASentence) {
  EXPECT_EQ(pagemill_engine_create(nullptr, &engine_), PAGEMILL_INVALID_ARGUMENT);
  EXPECT_EQ(pagemill_engine_create(&options_, nullptr), PAGEMILL_INVALID_ARGUMENT);
  pagemill_engine_options bad = options_;
  bad.program_path = "/does/not/exist";
  EXPECT_EQ(pagemill_engine_create(&bad, &engine_), PAGEMILL_NOT_FOUND);
  EXPECT_NE(std::string(pagemill_last_error()).find("/does/not/exist"), std::string::npos);
  bad = options_;
  bad.kv_cache_dtype = "q3";
  EXPECT_EQ(pagemill_engine_create(&bad, &engine_), PAGEMILL_INVALID_ARGUMENT);
  bad = options_;
  bad.struct_size = sizeof(bad) + 8;  // of a newer header
  EXPECT_EQ(pagemill_engine_create(&bad, &engine_), PAGEMILL_INVALID_ARGUMENT);
  EXPECT_EQ(engine_, nullptr);

  Create();
  pagemill_sampling_params params;
  pagemill_sampling_params_init(&params);
  const int32_t out_of_range = kVocab;
  EXPECT_EQ(pagemill_engine_submit(engine_, 1, &out_of_range, 1, &params),
            PAGEMILL_INVALID_ARGUMENT);
  EXPECT_EQ(pagemill_engine_submit(engine_, 1, nullptr, 0, &params), PAGEMILL_INVALID_ARGUMENT);
  EXPECT_EQ(pagemill_engine_submit(engine_, 1, nullptr, 3, &params), PAGEMILL_INVALID_ARGUMENT);
  const std::vector<int32_t> long_prompt(65, 1);
  EXPECT_EQ(pagemill_engine_submit(engine_, 1, long_prompt.data(), long_prompt.size(), &params),
            PAGEMILL_INVALID_ARGUMENT);
  params.top_p = 2.0f;
  const int32_t prompt = 1;
  EXPECT_EQ(pagemill_engine_submit(engine_, 1, &prompt, 1, &params), PAGEMILL_INVALID_ARGUMENT);
  EXPECT_NE(std::string(pagemill_last_error()).find("top_p"), std::string::npos)
      << pagemill_last_error();
  pagemill_output out;
  EXPECT_EQ(pagemill_engine_next(engine_, 0.01, &out), PAGEMILL_DEADLINE_EXCEEDED);
}

TEST(Capi, OlderHostsStructsKeepTheDefaultsOfNewFields) {
  pagemill_sampling_params params;
  pagemill_sampling_params_init(&params);
  EXPECT_EQ(params.struct_size, sizeof(params));
  EXPECT_EQ(params.top_p, 1.0f);
  EXPECT_EQ(pagemill_abi_version(), PAGEMILL_ABI_VERSION);
}

}  // namespace
