#include "cc/capi/pagemill.h"

#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "cc/capi/testing/bigram_model.h"
#include "gtest/gtest.h"

namespace {

using pagemill::capi::BigramModel;

class CapiTest : public testing::Test {
 protected:
  void SetUp() override {
    path_ = testing::TempDir() + "/bigram.program";
    std::ofstream(path_) << model_.ProgramText();
    pagemill_engine_options_init(&options_, sizeof(options_));
    options_.program_path = path_.c_str();
    options_.num_threads = 1;
    options_.max_model_len = 64;
  }
  void TearDown() override { pagemill_engine_destroy(engine_); }

  void Create() {
    ASSERT_EQ(pagemill_engine_create(&options_, &engine_), PAGEMILL_OK) << pagemill_last_error();
  }
  // Reads until the request ends; returns its tokens.
  std::vector<int32_t> Finish(int32_t* finish_reason) {
    std::vector<int32_t> tokens;
    pagemill_output out;
    pagemill_output_init(&out, sizeof(out));
    do {
      if (pagemill_engine_next(engine_, 20.0, &out) != PAGEMILL_OK) break;
      tokens.insert(tokens.end(), out.token_ids, out.token_ids + out.num_tokens);
      *finish_reason = out.finish_reason;
      num_cached_tokens_ = out.num_cached_tokens;
    } while (out.finish_reason == PAGEMILL_NOT_FINISHED);
    return tokens;
  }

  BigramModel model_;
  std::string path_;
  pagemill_engine_options options_;
  pagemill_engine* engine_ = nullptr;
  int32_t num_cached_tokens_ = -1;  // of the request that Finish() read
};

TEST_F(CapiTest, GeneratesTheModelsTokens) {
  Create();
  pagemill_sampling_params params;
  pagemill_sampling_params_init(&params, sizeof(params));
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
  pagemill_stats_init(&stats, sizeof(stats));
  ASSERT_EQ(pagemill_engine_stats(engine_, &stats), PAGEMILL_OK);
  EXPECT_EQ(stats.num_running, 0u);
  EXPECT_EQ(stats.num_used_blocks, 0u);
}

TEST_F(CapiTest, StopTokenEndsTheRequest) {
  Create();
  pagemill_sampling_params params;
  pagemill_sampling_params_init(&params, sizeof(params));
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
  pagemill_sampling_params_init(&params, sizeof(params));
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
  std::string with_media = model_.ProgramText();
  with_media.insert(with_media.find("input token_ids"), "input embeddings f32 media_rows,32\n");
  const std::string media_path = testing::TempDir() + "/media.program";
  std::ofstream(media_path) << with_media;
  bad.program_path = media_path.c_str();
  EXPECT_EQ(pagemill_engine_create(&bad, &engine_), PAGEMILL_INVALID_ARGUMENT);
  EXPECT_NE(std::string(pagemill_last_error()).find("--language-model-only"), std::string::npos);
  bad = options_;
  bad.kv_cache_dtype = "q3";
  EXPECT_EQ(pagemill_engine_create(&bad, &engine_), PAGEMILL_INVALID_ARGUMENT);
  bad = options_;
  bad.struct_size = sizeof(bad) + 8;  // of a newer header
  EXPECT_EQ(pagemill_engine_create(&bad, &engine_), PAGEMILL_INVALID_ARGUMENT);
  EXPECT_EQ(engine_, nullptr);

  Create();
  pagemill_sampling_params params;
  pagemill_sampling_params_init(&params, sizeof(params));
  const int32_t out_of_range = BigramModel::kVocab;
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
  pagemill_output_init(&out, sizeof(out));
  EXPECT_EQ(pagemill_engine_next(engine_, 0.01, &out), PAGEMILL_DEADLINE_EXCEEDED);
}

TEST_F(CapiTest, RequestCarriesWhatSubmitDoesNot) {
  Create();
  const std::vector<int32_t> prompt(40, 3);
  pagemill_request request;
  pagemill_request_init(&request, sizeof(request));
  request.prompt_token_ids = prompt.data();
  request.num_prompt_tokens = prompt.size();
  // The same prompt hits the prefix cache if the salt is equal and the request may read the cache.
  const struct {
    const char* salt;
    int32_t skip_reading;
    int32_t num_cached_tokens;
  } cases[] = {{"x", 0, 0}, {"x", 0, 32}, {"y", 0, 0}, {"x", 1, 0}, {nullptr, 0, 0}};
  for (const auto& c : cases) {
    ++request.request_id;
    request.cache_salt = c.salt;
    request.skip_reading_prefix_cache = c.skip_reading;
    ASSERT_EQ(pagemill_engine_submit_request(engine_, &request), PAGEMILL_OK)
        << pagemill_last_error();
    int32_t reason = -1;
    EXPECT_EQ(Finish(&reason).size(), 16u);  // the default of max_tokens
    EXPECT_EQ(num_cached_tokens_, c.num_cached_tokens) << request.request_id;
  }
}

TEST_F(CapiTest, ResetForgetsPrefixes) {
  Create();
  const std::vector<int32_t> prompt(40, 3);
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(pagemill_engine_submit(engine_, 1, prompt.data(), prompt.size(), nullptr),
              PAGEMILL_OK);
    int32_t reason = -1;
    Finish(&reason);
    EXPECT_EQ(num_cached_tokens_, 0);
    EXPECT_EQ(pagemill_engine_reset_prefix_cache(engine_), PAGEMILL_OK);
  }
}

TEST_F(CapiTest, DrainRefusesAndWaitIdleWaits) {
  Create();
  const int32_t prompt = 1;
  ASSERT_EQ(pagemill_engine_submit(engine_, 1, &prompt, 1, nullptr), PAGEMILL_OK);
  EXPECT_EQ(pagemill_engine_drain(engine_), PAGEMILL_OK);
  EXPECT_EQ(pagemill_engine_submit(engine_, 2, &prompt, 1, nullptr), PAGEMILL_UNAVAILABLE);
  EXPECT_EQ(pagemill_engine_wait_idle(engine_, 20.0), PAGEMILL_OK);
  pagemill_stats stats;
  pagemill_stats_init(&stats, sizeof(stats));
  ASSERT_EQ(pagemill_engine_stats(engine_, &stats), PAGEMILL_OK);
  EXPECT_EQ(stats.num_submitted, 1u);
  EXPECT_EQ(stats.num_refused, 1u);
  EXPECT_EQ(stats.finished_length, 1u);
  EXPECT_EQ(stats.generation_tokens, 16u);
  EXPECT_EQ(stats.num_unread_outputs, 1u);
}

TEST_F(CapiTest, ANullIsRefusedEverywhere) {
  Create();
  const auto refused = [](pagemill_status status) { return status == PAGEMILL_INVALID_ARGUMENT; };
  pagemill_request request;
  pagemill_request_init(&request, sizeof(request));
  pagemill_output output;
  pagemill_output_init(&output, sizeof(output));
  pagemill_stats stats;
  pagemill_stats_init(&stats, sizeof(stats));
  EXPECT_TRUE(refused(pagemill_engine_submit_request(nullptr, &request)));
  EXPECT_TRUE(refused(pagemill_engine_submit_request(engine_, nullptr)));
  EXPECT_TRUE(refused(pagemill_engine_submit(nullptr, 1, nullptr, 0, nullptr)));
  EXPECT_TRUE(refused(pagemill_engine_abort(nullptr, 1)));
  EXPECT_TRUE(refused(pagemill_engine_next(nullptr, 0, &output)));
  EXPECT_TRUE(refused(pagemill_engine_next(engine_, 0, nullptr)));
  EXPECT_TRUE(refused(pagemill_engine_stats(nullptr, &stats)));
  EXPECT_TRUE(refused(pagemill_engine_stats(engine_, nullptr)));
  EXPECT_TRUE(refused(pagemill_engine_drain(nullptr)));
  EXPECT_TRUE(refused(pagemill_engine_wait_idle(nullptr, 0)));
  EXPECT_TRUE(refused(pagemill_engine_reset_prefix_cache(nullptr)));
  pagemill_engine_options_init(nullptr, sizeof(options_));
  pagemill_sampling_params_init(nullptr, 8);
  pagemill_request_init(nullptr, 8);
  pagemill_output_init(nullptr, 8);
  pagemill_stats_init(nullptr, 8);
  pagemill_kv_events_init(nullptr, 8);
  pagemill_runner_init(nullptr, 8);
  pagemill_kv_group_init(nullptr, 8);
  pagemill_request_result_init(nullptr, 8);
  int32_t number = 0;
  uint64_t pin = 0;
  size_t count = 0;
  EXPECT_TRUE(refused(pagemill_engine_output_fd(nullptr, &number)));
  EXPECT_TRUE(refused(pagemill_engine_output_fd(engine_, nullptr)));
  EXPECT_TRUE(refused(pagemill_engine_pin_prefix(engine_, nullptr, &pin, &number)));
  EXPECT_TRUE(refused(pagemill_engine_pin_prefix(engine_, &request, nullptr, &number)));
  EXPECT_TRUE(refused(pagemill_engine_unpin_prefix(nullptr, 1)));
  EXPECT_TRUE(refused(pagemill_engine_save_session(engine_, nullptr, &request, &number)));
  EXPECT_TRUE(refused(pagemill_engine_save_session(engine_, "x", &request, nullptr)));
  EXPECT_TRUE(refused(pagemill_engine_save_session(engine_, "x", nullptr, &number)));
  EXPECT_TRUE(
      refused(pagemill_engine_restore_session(engine_, "x", nullptr, nullptr, 1, &count, &number)));
  EXPECT_TRUE(refused(
      pagemill_engine_restore_session(engine_, "x", nullptr, nullptr, 0, nullptr, &number)));
  EXPECT_TRUE(refused(pagemill_engine_sleep(nullptr, 0, 0)));
  EXPECT_TRUE(refused(pagemill_engine_wake(nullptr, 0)));
  pagemill_engine_destroy(nullptr);
}

TEST_F(CapiTest, AStructOfNoKnownSizeIsRefused) {
  Create();
  const size_t sizes[] = {0, 4, 8, sizeof(pagemill_output) - 1, sizeof(pagemill_output) + 8};
  for (size_t size : sizes) {
    pagemill_output output;
    output.struct_size = size;
    EXPECT_EQ(pagemill_engine_next(engine_, 0, &output), PAGEMILL_INVALID_ARGUMENT) << size;
  }
  const std::string named = "output->struct_size is " + std::to_string(sizes[4]);
  EXPECT_NE(std::string(pagemill_last_error()).find(named), std::string::npos)
      << pagemill_last_error();
}

TEST_F(CapiTest, ValuesOutOfRangeAreRefusedByName) {
  Create();
  const std::string long_name(1025, 'x');
  const int32_t prompt[] = {1};
  pagemill_request good;
  pagemill_request_init(&good, sizeof(good));
  good.prompt_token_ids = prompt;
  good.num_prompt_tokens = 1;
  const auto expect_refusal = [&](const char* field, pagemill_request bad) {
    EXPECT_EQ(pagemill_engine_submit_request(engine_, &bad), PAGEMILL_INVALID_ARGUMENT) << field;
    EXPECT_NE(std::string(pagemill_last_error()).find(field), std::string::npos)
        << pagemill_last_error();
  };
  pagemill_request bad = good;
  bad.num_prompt_tokens = SIZE_MAX;
  expect_refusal("prompt_token_ids", bad);
  bad = good;
  bad.tenant = long_name.c_str();
  expect_refusal("tenant", bad);
  bad = good;
  bad.cache_salt = long_name.c_str();
  expect_refusal("cache_salt", bad);
  bad = good;
  bad.priority = -3;  // invalid under the default policy
  expect_refusal("priority is -3", bad);
  bad = good;
  bad.skip_reading_prefix_cache = 2;
  expect_refusal("skip_reading_prefix_cache", bad);
  pagemill_sampling_params sampling;
  pagemill_sampling_params_init(&sampling, sizeof(sampling));
  sampling.num_stop_token_ids = SIZE_MAX;
  sampling.stop_token_ids = prompt;
  bad = good;
  bad.sampling = &sampling;
  expect_refusal("stop_token_ids", bad);
}

TEST_F(CapiTest, DraftsFromTheTextGiveTheSameTokens) {
  options_.num_ngram_drafts = 4;
  Create();
  pagemill_sampling_params params;
  pagemill_sampling_params_init(&params, sizeof(params));
  params.temperature = 0.0f;
  params.max_tokens = 60;  // more than the vocabulary: the text repeats itself
  params.ignore_eos = 1;
  const int32_t prompt = 5;
  ASSERT_EQ(pagemill_engine_submit(engine_, 1, &prompt, 1, &params), PAGEMILL_OK);
  int32_t reason = -1;
  std::vector<int32_t> want = {model_.Next(prompt)};
  while (want.size() < 60) want.push_back(model_.Next(want.back()));
  EXPECT_EQ(Finish(&reason), want);
  pagemill_stats stats;
  pagemill_stats_init(&stats, sizeof(stats));
  ASSERT_EQ(pagemill_engine_stats(engine_, &stats), PAGEMILL_OK);
  EXPECT_GT(stats.accepted_draft_tokens, 0u);
}

TEST_F(CapiTest, ARequestSaysWhatIsReportedAndEndsWithARepetition) {
  Create();
  pagemill_sampling_params params;
  pagemill_sampling_params_init(&params, sizeof(params));
  params.temperature = 0.0f;
  params.max_tokens = 40;
  const pagemill_token_value bias = {17, 100.0f};
  params.logit_bias = &bias;
  params.num_logit_bias = 1;
  const int32_t chosen[] = {3, 17};
  params.logprobs = 0;
  params.logprob_token_ids = chosen;
  params.num_logprob_token_ids = 2;
  params.logprobs_mode = 2;  // processed log probabilities
  params.repetition_max_pattern = 2;
  params.repetition_min_count = 5;
  const int32_t prompt = 5;
  ASSERT_EQ(pagemill_engine_submit(engine_, 1, &prompt, 1, &params), PAGEMILL_OK);
  pagemill_output out;
  pagemill_output_init(&out, sizeof(out));
  size_t num_tokens = 0;
  do {
    ASSERT_EQ(pagemill_engine_next(engine_, 20.0, &out), PAGEMILL_OK);
    num_tokens += out.num_tokens;
    ASSERT_EQ(out.num_logprobs, out.num_tokens);
    for (size_t i = 0; i < out.num_logprobs; ++i) {
      const pagemill_token_logprobs& logprobs = out.logprobs[i];
      ASSERT_EQ(logprobs.num_top, 2);
      EXPECT_EQ(logprobs.top[0].token_id, 3);
      EXPECT_LT(logprobs.top[0].value, -10.0f);
      EXPECT_EQ(logprobs.top[1].token_id, 17);
      EXPECT_NEAR(logprobs.top[1].value, 0.0f, 1e-3f);  // with its bias
    }
  } while (out.finish_reason == PAGEMILL_NOT_FINISHED);
  EXPECT_EQ(out.finish_reason, PAGEMILL_FINISH_REPETITION);
  EXPECT_EQ(num_tokens, 5u);
  pagemill_stats stats;
  pagemill_stats_init(&stats, sizeof(stats));
  ASSERT_EQ(pagemill_engine_stats(engine_, &stats), PAGEMILL_OK);
  EXPECT_EQ(stats.finished_repetition, 1u);
}

TEST_F(CapiTest, ABiasAndAnEndOfSequenceTokenReachTheSampler) {
  Create();
  pagemill_sampling_params params;
  pagemill_sampling_params_init(&params, sizeof(params));
  params.temperature = 0.0f;
  const pagemill_token_value bias = {17, 100.0f};
  const int32_t eos = 17, prompt = 5;
  params.logit_bias = &bias;
  params.num_logit_bias = 1;
  params.eos_token_ids = &eos;
  params.num_eos_token_ids = 1;
  ASSERT_EQ(pagemill_engine_submit(engine_, 1, &prompt, 1, &params), PAGEMILL_OK);
  int32_t reason = -1;
  EXPECT_EQ(Finish(&reason), std::vector<int32_t>{17});
  EXPECT_EQ(reason, PAGEMILL_FINISH_STOP);
}

TEST_F(CapiTest, NewOptionsAreRefusedByName) {
  const auto refused = [&](const char* field, auto change) {
    pagemill_engine_options bad = options_;
    change(&bad);
    EXPECT_EQ(pagemill_engine_create(&bad, &engine_), PAGEMILL_INVALID_ARGUMENT) << field;
    EXPECT_NE(std::string(pagemill_last_error()).find(field), std::string::npos)
        << pagemill_last_error();
  };
  const pagemill_tenant_weight heavy = {"a", int64_t{1} << 40}, nameless = {nullptr, 1};
  refused("max_step_us", [](auto* o) { o->max_step_us = -2; });
  refused("num_ngram_drafts", [](auto* o) { o->num_ngram_drafts = -1; });
  refused("kv_tier_policy", [](auto* o) { o->kv_tier_policy = nullptr; });
  refused("prefix_cache_eviction", [](auto* o) { o->prefix_cache_eviction = nullptr; });
  refused("check_integrity", [](auto* o) { o->check_integrity = 3; });
  refused("tenant_weights", [](auto* o) { o->num_tenant_weights = 1; });
  refused("tenant_weights", [&](auto* o) {
    o->tenant_weights = &heavy;
    o->num_tenant_weights = 1;
  });
  refused("tenant_weights", [&](auto* o) {
    o->tenant_weights = &nameless;
    o->num_tenant_weights = 1;
  });
}

TEST_F(CapiTest, OptionsOutOfRangeAreRefusedByName) {
  const auto expect_refusal = [&](const char* field, const pagemill_engine_options& bad) {
    EXPECT_EQ(pagemill_engine_create(&bad, &engine_), PAGEMILL_INVALID_ARGUMENT) << field;
    EXPECT_EQ(engine_, nullptr);
    EXPECT_NE(std::string(pagemill_last_error()).find(field), std::string::npos)
        << pagemill_last_error();
  };
  pagemill_engine_options bad = options_;
  bad.program_path = nullptr;
  expect_refusal("program_path", bad);
  bad = options_;
  bad.scheduling_policy = "luck";
  expect_refusal("luck", bad);
  bad = options_;
  bad.prefix_caching_hash = nullptr;
  expect_refusal("prefix_caching_hash", bad);
  bad = options_;
  bad.enable_prefix_caching = -1;
  expect_refusal("enable_prefix_caching", bad);
  bad = options_;
  bad.long_prefill_token_threshold = -1;
  expect_refusal("long_prefill_token_threshold", bad);
  for (int32_t value : {-1, 0, INT32_MIN}) {
    bad = options_;
    bad.max_model_len = value;
    expect_refusal("max_model_len", bad);
    bad = options_;
    bad.block_size = value;
    expect_refusal("block_size", bad);
  }
  bad = options_;
  bad.max_model_len = INT32_MAX;
  bad.block_size = INT32_MAX;
  expect_refusal("block_size", bad);
}

TEST(Capi, InitFillsInDefaultsAndNoMoreThanTheStruct) {
  pagemill_sampling_params params;
  pagemill_sampling_params_init(&params, sizeof(params));
  EXPECT_EQ(params.struct_size, sizeof(params));
  EXPECT_EQ(params.top_p, 1.0f);
  pagemill_stats stats;
  std::memset(&stats, 0xab, sizeof(stats));
  pagemill_stats_init(&stats, 16);  // size in a header with one field
  EXPECT_EQ(stats.struct_size, 16u);
  EXPECT_EQ(stats.num_running, 0u);
  EXPECT_EQ(stats.num_waiting, 0xababababababababu);
  EXPECT_EQ(pagemill_abi_version(), PAGEMILL_ABI_VERSION);
}

}  // namespace
