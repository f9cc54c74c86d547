// Input in parts, held starts, time limits, logits processors, pauses and resets through the C ABI.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "cc/capi/pagemill.h"
#include "cc/capi/testing/bigram_model.h"
#include "gtest/gtest.h"

namespace {

using pagemill::capi::BigramModel;

class CapiControlTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string path = testing::TempDir() + "/bigram_control.program";
    std::ofstream(path) << model_.ProgramText();
    pagemill_engine_options options;
    pagemill_engine_options_init(&options, sizeof(options));
    options.program_path = path.c_str();
    options.num_threads = 1;
    options.max_model_len = 64;
    ASSERT_EQ(pagemill_engine_create(&options, &engine_), PAGEMILL_OK) << pagemill_last_error();
    pagemill_sampling_params_init(&sampling_, sizeof(sampling_));
    sampling_.temperature = 0.0f;
    sampling_.max_tokens = 4;
    pagemill_request_init(&request_, sizeof(request_));
    request_.request_id = 1;
    request_.prompt_token_ids = &kFirstToken;
    request_.num_prompt_tokens = 1;
    request_.sampling = &sampling_;
    pagemill_output_init(&output_, sizeof(output_));
  }
  void TearDown() override { pagemill_engine_destroy(engine_); }

  pagemill_status Submit() { return pagemill_engine_submit_request(engine_, &request_); }
  pagemill_status Extend(const std::vector<int32_t>& tokens, int32_t part) {
    return pagemill_engine_extend(engine_, 1, tokens.data(), tokens.size(), part);
  }
  // Reads until a turn or the request ends.
  std::vector<int32_t> Read() {
    std::vector<int32_t> tokens;
    do {
      if (pagemill_engine_next(engine_, 20.0, &output_) != PAGEMILL_OK) {
        ADD_FAILURE() << pagemill_last_error();
        break;
      }
      tokens.insert(tokens.end(), output_.token_ids, output_.token_ids + output_.num_tokens);
    } while (output_.finish_reason == 0 && output_.turn_finished == 0);
    return tokens;
  }
  std::vector<int32_t> Behind(int32_t token) const {
    std::vector<int32_t> tokens = {model_.Next(token)};
    while (tokens.size() < 4) tokens.push_back(model_.Next(tokens.back()));
    return tokens;
  }
  uint64_t Paused() const {
    pagemill_stats stats;
    pagemill_stats_init(&stats, sizeof(stats));
    EXPECT_EQ(pagemill_engine_stats(engine_, &stats), PAGEMILL_OK);
    return stats.paused;
  }

  static constexpr int32_t kFirstToken = 5;
  BigramModel model_;
  pagemill_engine* engine_ = nullptr;
  pagemill_sampling_params sampling_;
  pagemill_request request_;
  pagemill_output output_;
};

TEST_F(CapiControlTest, InputComesInParts) {
  request_.streaming_input = 1;
  ASSERT_EQ(Submit(), PAGEMILL_OK) << pagemill_last_error();
  ASSERT_EQ(Extend({9, 3}, PAGEMILL_INPUT_MORE), PAGEMILL_OK) << pagemill_last_error();
  ASSERT_EQ(Extend({14}, PAGEMILL_INPUT_LAST), PAGEMILL_OK) << pagemill_last_error();
  EXPECT_EQ(Read(), Behind(14));
  EXPECT_EQ(output_.finish_reason, PAGEMILL_FINISH_LENGTH);
  EXPECT_EQ(output_.turn_finished, PAGEMILL_NOT_FINISHED);
}

TEST_F(CapiControlTest, TurnsFollowOneAnother) {
  request_.streaming_input = 1;
  ASSERT_EQ(Submit(), PAGEMILL_OK);
  ASSERT_EQ(pagemill_engine_extend(engine_, 1, nullptr, 0, PAGEMILL_INPUT_TURN), PAGEMILL_OK)
      << pagemill_last_error();
  EXPECT_EQ(Read(), Behind(5));
  EXPECT_EQ(output_.turn_finished, PAGEMILL_FINISH_LENGTH);
  EXPECT_EQ(output_.finish_reason, PAGEMILL_NOT_FINISHED);
  ASSERT_EQ(Extend({7}, PAGEMILL_INPUT_LAST), PAGEMILL_OK) << pagemill_last_error();
  EXPECT_EQ(Read(), Behind(7));
  EXPECT_EQ(output_.finish_reason, PAGEMILL_FINISH_LENGTH);
}

TEST_F(CapiControlTest, AHeldRequestWaitsForItsRelease) {
  request_.starts_held = 1;
  ASSERT_EQ(Submit(), PAGEMILL_OK);
  EXPECT_EQ(pagemill_engine_next(engine_, 0.01, &output_), PAGEMILL_DEADLINE_EXCEEDED);
  EXPECT_EQ(pagemill_engine_release(engine_, 99), PAGEMILL_OK);
  EXPECT_EQ(pagemill_engine_release(engine_, 1), PAGEMILL_OK);
  EXPECT_EQ(Read(), Behind(5));
}

TEST_F(CapiControlTest, TimeLimitsEndARequest) {
  request_.starts_held = 1;
  for (double* limit : {&request_.start_timeout_s, &request_.timeout_s}) {
    *limit = 0.02;
    ASSERT_EQ(Submit(), PAGEMILL_OK);
    EXPECT_TRUE(Read().empty());
    EXPECT_EQ(output_.finish_reason, PAGEMILL_FINISH_ERROR);
    EXPECT_EQ(output_.error, PAGEMILL_DEADLINE_EXCEEDED);
    *limit = 0;
  }
  request_.starts_held = 0;
  request_.timeout_s = 1e300;
  ASSERT_EQ(Submit(), PAGEMILL_OK);
  EXPECT_EQ(Read(), Behind(5));
}

TEST_F(CapiControlTest, APausedEngineAcceptsAndWaits) {
  EXPECT_EQ(pagemill_engine_wait_paused(engine_, 0.001), PAGEMILL_DEADLINE_EXCEEDED);
  for (int32_t mode : {PAGEMILL_PAUSE_KEEP, PAGEMILL_PAUSE_WAIT, PAGEMILL_PAUSE_ABORT}) {
    ASSERT_EQ(pagemill_engine_pause(engine_, mode), PAGEMILL_OK);
    ASSERT_EQ(pagemill_engine_wait_paused(engine_, 20.0), PAGEMILL_OK);
    EXPECT_EQ(Paused(), 1u);
    ASSERT_EQ(Submit(), PAGEMILL_OK);
    EXPECT_EQ(pagemill_engine_next(engine_, 0.01, &output_), PAGEMILL_DEADLINE_EXCEEDED);
    ASSERT_EQ(pagemill_engine_resume(engine_), PAGEMILL_OK);
    EXPECT_EQ(Paused(), 0u);
    EXPECT_EQ(Read(), Behind(5));
  }
}

TEST_F(CapiControlTest, AResetWithPreemptionChangesNoTokens) {
  sampling_.max_tokens = 60;
  ASSERT_EQ(Submit(), PAGEMILL_OK);
  ASSERT_EQ(pagemill_engine_preempt_and_reset_prefix_cache(engine_), PAGEMILL_OK);
  std::vector<int32_t> tokens = Read();
  EXPECT_EQ(tokens.size(), 60u);
  tokens.resize(4);
  EXPECT_EQ(tokens, Behind(5));
}

TEST_F(CapiControlTest, RefusalsHaveASentence) {
  const auto expect_refusal = [](pagemill_status got, pagemill_status expected, const char* word) {
    EXPECT_EQ(got, expected);
    EXPECT_NE(std::string(pagemill_last_error()).find(word), std::string::npos)
        << pagemill_last_error();
  };
  expect_refusal(Extend({1}, PAGEMILL_INPUT_LAST), PAGEMILL_NOT_FOUND, "request 1");
  expect_refusal(Extend({1}, 3), PAGEMILL_INVALID_ARGUMENT, "part");
  expect_refusal(pagemill_engine_extend(engine_, 1, nullptr, 1, PAGEMILL_INPUT_LAST),
                 PAGEMILL_INVALID_ARGUMENT, "token_ids");
  expect_refusal(Extend(std::vector<int32_t>(65), 0), PAGEMILL_INVALID_ARGUMENT, "token_ids");
  expect_refusal(pagemill_engine_pause(engine_, -1), PAGEMILL_INVALID_ARGUMENT, "mode");
  expect_refusal(pagemill_engine_resume(nullptr), PAGEMILL_INVALID_ARGUMENT, "engine");
  const pagemill_request good = request_;
  const auto expect_bad = [&](const char* word) {
    expect_refusal(Submit(), PAGEMILL_INVALID_ARGUMENT, word);
    request_ = good;
  };
  request_.streaming_input = 2;
  expect_bad("streaming_input");
  request_.starts_held = -1;
  expect_bad("starts_held");
  request_.start_timeout_s = std::nan("");
  expect_bad("start_timeout_s");
  request_.timeout_s = -1;
  expect_bad("timeout_s");
}

// What AllowOne() allows first; each next token is one higher, modulo the vocabulary.
struct AllowedToken {
  int32_t token_id;
  pagemill_engine* engine;  // a processor must not call it
  std::atomic<int32_t> num_calls = 0;
  std::atomic<int32_t> num_wrong = 0;
};

pagemill_status AllowOne(void* context, const pagemill_logits_row* row) {
  AllowedToken& allowed = *static_cast<AllowedToken*>(context);
  ++allowed.num_calls;
  const bool right = row->struct_size == sizeof(*row) && row->request_id == 1 &&
                     row->num_prompt_tokens == 1 && row->vocab_size == BigramModel::kVocab &&
                     pagemill_engine_abort(allowed.engine, 1) == PAGEMILL_FAILED_PRECONDITION;
  if (!right) ++allowed.num_wrong;
  const int32_t token = (allowed.token_id + static_cast<int32_t>(row->num_output_tokens)) %
                        static_cast<int32_t>(row->vocab_size);
  for (size_t i = 0; i < row->vocab_size; ++i) {
    if (i != static_cast<size_t>(token)) row->logits[i] = -INFINITY;
  }
  return PAGEMILL_OK;
}

TEST_F(CapiControlTest, ALogitsProcessorMasksTokens) {
  AllowedToken allowed = {.token_id = 50, .engine = engine_};
  request_.logits_processor = AllowOne;
  request_.logits_context = &allowed;
  ASSERT_EQ(Submit(), PAGEMILL_OK) << pagemill_last_error();
  EXPECT_EQ(Read(), (std::vector<int32_t>{50, 51, 52, 0}));
  EXPECT_GE(allowed.num_calls, 4);
  EXPECT_EQ(allowed.num_wrong, 0);

  request_.logits_processor = nullptr;  // the context alone does nothing
  ASSERT_EQ(Submit(), PAGEMILL_OK);
  EXPECT_EQ(Read(), Behind(kFirstToken));
}

TEST_F(CapiControlTest, ALogitsProcessorThatFailsEndsItsRequest) {
  const struct {
    pagemill_logits_function function;
    int32_t error;
    const char* word;
  } cases[] = {
      {[](void*, const pagemill_logits_row*) {
         pagemill_set_last_error("the grammar is broken");
         return PAGEMILL_INVALID_ARGUMENT;
       },
       PAGEMILL_INVALID_ARGUMENT, "grammar is broken"},
      {[](void*, const pagemill_logits_row*) { return static_cast<pagemill_status>(99); },
       PAGEMILL_INTERNAL, "returned 99"},
      {[](void*, const pagemill_logits_row*) -> pagemill_status { throw 1; }, PAGEMILL_INTERNAL,
       "threw"},
      {[](void*, const pagemill_logits_row* row) {
         row->logits[3] = std::nanf("");
         return PAGEMILL_OK;
       },
       PAGEMILL_INTERNAL, "token 3"},
      {[](void*, const pagemill_logits_row* row) {
         std::fill_n(row->logits, row->vocab_size, -INFINITY);
         return PAGEMILL_OK;
       },
       PAGEMILL_INVALID_ARGUMENT, "no token may come"},
  };
  for (const auto& c : cases) {
    request_.logits_processor = c.function;
    ASSERT_EQ(Submit(), PAGEMILL_OK) << pagemill_last_error();
    EXPECT_TRUE(Read().empty());
    EXPECT_EQ(output_.finish_reason, PAGEMILL_FINISH_ERROR) << c.word;
    EXPECT_EQ(output_.error, c.error) << c.word;
    EXPECT_NE(std::string(output_.error_message).find(c.word), std::string::npos)
        << output_.error_message;
  }
  request_.logits_processor = nullptr;
  ASSERT_EQ(Submit(), PAGEMILL_OK);
  EXPECT_EQ(Read(), Behind(kFirstToken));
}

TEST_F(CapiControlTest, SleepsWakesAndTakesOtherWeights) {
  ASSERT_EQ(Submit(), PAGEMILL_OK);
  EXPECT_EQ(Read(), Behind(kFirstToken));
  ASSERT_EQ(pagemill_engine_sleep(engine_, 0, 20.0), PAGEMILL_OK) << pagemill_last_error();
  EXPECT_EQ(Submit(), PAGEMILL_UNAVAILABLE);
  ASSERT_EQ(pagemill_engine_wake(engine_, 20.0), PAGEMILL_OK) << pagemill_last_error();
  ASSERT_EQ(Submit(), PAGEMILL_OK);
  EXPECT_EQ(Read(), Behind(kFirstToken));

  // With its embedding as the head, a token follows itself.
  std::string text = model_.ProgramText();
  const std::string head = "weight head f32 53,32 0 ";
  const size_t offset = text.find(head) + head.size();
  text.replace(offset, text.find('\n', offset) - offset, "0");
  const std::string path = testing::TempDir() + "/other_bigram.program";
  std::ofstream(path) << text;
  ASSERT_EQ(pagemill_engine_update_weights(engine_, path.c_str(), 20.0), PAGEMILL_OK)
      << pagemill_last_error();
  ASSERT_EQ(Submit(), PAGEMILL_OK);
  EXPECT_EQ(Read(), std::vector<int32_t>(4, kFirstToken));
  EXPECT_EQ(pagemill_engine_update_weights(engine_, nullptr, 1.0), PAGEMILL_INVALID_ARGUMENT);
  EXPECT_EQ(pagemill_engine_update_weights(engine_, "/none", 1.0), PAGEMILL_NOT_FOUND);
}

}  // namespace
