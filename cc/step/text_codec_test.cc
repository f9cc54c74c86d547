#include "cc/step/text_codec.h"

#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "gtest/gtest.h"

namespace pagemill::step {
namespace {

Request ExampleRequest() {
  Request request;
  request.id = RequestId(18446744073709551615u);
  request.prompt_token_ids = {5, 0, 2147483647};
  request.priority = -3;
  request.cache_salt = std::string("a =\n\0\xff", 6);
  request.skip_reading_prefix_cache = true;
  request.tenant = "t, =";
  request.adapter = AdapterId(4);
  request.media = {{"cat:1,", 2, 5}, {"dog", 9, 1}};
  request.starts_held = true;
  request.streaming_input = true;
  request.deadline_us = -5;
  request.kv_transfer_params = {{"", "x"}, {"a:,", "\xff="}};
  request.sampling.temperature = 0.1f;
  request.sampling.top_k = 40;
  request.sampling.logit_bias = {{7, -1.5f}, {8, 100.0f}};
  request.sampling.seed = 1234567890123456789u;
  request.sampling.ignore_eos = true;
  request.sampling.eos_token_ids = {1};
  request.sampling.stop_token_ids = {2, 3};
  request.sampling.logprobs = 0;
  request.sampling.logprob_token_ids = {9, 4};
  request.sampling.logprobs_mode = SamplingParams::kProcessedLogits;
  request.sampling.repetition_max_pattern = 20;
  request.sampling.repetition_min_pattern = 2;
  request.sampling.repetition_min_count = 3;
  request.sampling.timestamp_begin = 33;
  return request;
}

StepResult ExampleResult() {
  StepResult result;
  result.step_id = 9;
  RequestResult& first = result.results.emplace_back();
  first.index = RequestIndex(3);
  first.sampled_token_ids = {11, 12};
  first.draft_token_ids = {21, 22};
  first.logprobs = {{11, -0.25f, 1, {{11, -0.25f}, {4, -7.0f}}}, {12, -3.0f, 5, {}}};
  first.prompt_logprobs = {{6, -std::numeric_limits<float>::infinity(), 2, {{1, 0.0f}}}};
  RequestResult& second = result.results.emplace_back();
  second.index = RequestIndex(0);
  second.pooled = {1.0f, -0.0f, std::numeric_limits<float>::denorm_min()};
  second.routed_experts = {0, 65'535, 7};
  RequestResult& third = result.results.emplace_back();
  third.failure = Internal("out of paper, \"again\"");
  return result;
}

TEST(TextCodec, RequestSurvives) {
  for (bool pooling : {false, true}) {
    Request request = ExampleRequest();
    if (pooling) request.pooling.emplace();
    if (pooling) request.start_deadline_us = 1234567890123456789;
    const std::string text = ToText(request);
    EXPECT_EQ(text.find('\n'), std::string::npos);
    const StatusOr<Request> again = ParseRequest(text);
    ASSERT_TRUE(again.ok()) << again.status().ToString();
    EXPECT_EQ(ToText(*again), text);
    EXPECT_EQ(again->id, request.id);
    EXPECT_EQ(again->prompt_token_ids, request.prompt_token_ids);
    EXPECT_EQ(again->cache_salt, request.cache_salt);
    EXPECT_EQ(again->tenant, request.tenant);
    EXPECT_EQ(again->adapter, request.adapter);
    EXPECT_EQ(again->kv_transfer_params, request.kv_transfer_params);
    ASSERT_EQ(again->media.size(), 2u);
    EXPECT_EQ(again->media[0].content_id, "cat:1,");
    EXPECT_EQ(again->media[0].num_tokens, 5);
    EXPECT_EQ(again->media[1].first_token, 9);
    EXPECT_TRUE(again->starts_held && again->streaming_input);
    EXPECT_EQ(again->start_deadline_us, request.start_deadline_us);
    EXPECT_EQ(again->deadline_us, -5);
    EXPECT_EQ(again->sampling.temperature, request.sampling.temperature);
    EXPECT_EQ(again->sampling.logit_bias, request.sampling.logit_bias);
    EXPECT_EQ(again->sampling.seed, request.sampling.seed);
    EXPECT_EQ(again->sampling.stop_token_ids, request.sampling.stop_token_ids);
    EXPECT_EQ(again->pooling.has_value(), pooling);
  }
}

TEST(TextCodec, ResultSurvives) {
  const StepResult result = ExampleResult();
  const std::string text = ToText(result);
  const StatusOr<StepResult> again = ParseStepResult(text);
  ASSERT_TRUE(again.ok()) << again.status().ToString();
  EXPECT_EQ(ToText(*again), text);
  ASSERT_EQ(again->results.size(), 3u);
  EXPECT_EQ(again->results[0].sampled_token_ids, result.results[0].sampled_token_ids);
  EXPECT_EQ(again->results[0].logprobs[0].top, result.results[0].logprobs[0].top);
  EXPECT_TRUE(std::isinf(again->results[0].prompt_logprobs[0].logprob));
  EXPECT_EQ(again->results[1].pooled, result.results[1].pooled);
  EXPECT_TRUE(std::signbit(again->results[1].pooled[1]));
  EXPECT_EQ(again->results[1].routed_experts, result.results[1].routed_experts);
  EXPECT_EQ(again->results[2].failure, result.results[2].failure);
}

TEST(TextCodec, PlanIsReadable) {
  StepPlan plan;
  plan.step_id = 4;
  plan.total_num_tokens = 3;
  plan.released = {RequestIndex(2), RequestIndex(1)};
  plan.released_media = {"a1"};
  plan.num_common_prefix_blocks = {2};
  ScheduledRequest& entry = plan.scheduled.emplace_back();
  entry.index = RequestIndex(1);
  entry.start = std::make_shared<const Request>(ExampleRequest());
  entry.resumed_output_token_ids = {9};
  entry.num_computed_tokens = 16;
  entry.token_ids = {5, 6, 7};
  entry.media_to_encode = {1};
  entry.new_block_ids = {{BlockId(3), BlockId(8)}};
  entry.sample = true;
  ScheduledRequest& ahead = plan.scheduled.emplace_back();
  ahead.index = RequestIndex(0);
  ahead.num_computed_tokens = 7;
  ahead.token_ids = {kPlaceholderTokenId};
  ahead.draft_token_ids = {3, 4};
  ahead.new_block_ids = {{}, {kNullBlock}};
  ahead.prompt_logprobs = true;
  EXPECT_EQ(ToText(plan),
            "plan step=4 total=3 released=2,1 released_media=6131 common_prefix=2\n"
            "run slot=1 start=18446744073709551615 resumed=9 computed=16 tokens=5,6,7 drafts= "
            "encode=1 blocks=3,8 sample=1 prompt_logprobs=0\n"
            "run slot=0 computed=7 tokens=-1 drafts=3,4 encode= blocks= blocks=0 sample=0 "
            "prompt_logprobs=1\n");
}

TEST(TextCodec, GarbageIsRefusedAndHarmless) {
  for (const char* text : {"", "request", "result", "result step=", "result step=1 more=2",
                           "result step=1\nanswer slot=0", "request id=x"}) {
    EXPECT_EQ(ParseRequest(text).status().code(), StatusCode::kDataLoss) << text;
    EXPECT_EQ(ParseStepResult(text).status().code(), StatusCode::kDataLoss) << text;
  }
  // Whatever is accepted after damage is a value like any other: it is written as it was read.
  std::mt19937 random(1);
  const std::string request = ToText(ExampleRequest()), result = ToText(ExampleResult());
  int num_refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text = i % 2 == 0 ? request : result;
    const size_t at = random() % text.size();
    switch (random() % 3) {
      case 0:
        text[at] = static_cast<char>(random());
        break;
      case 1:
        text.erase(at, 1 + random() % 9);
        break;
      default:
        text.insert(at, 1, "0129=:,/ x\n"[random() % 11]);
        break;
    }
    if (i % 2 == 0) {
      const StatusOr<Request> parsed = ParseRequest(text);
      num_refused += !parsed.ok();
      if (parsed.ok()) {
        EXPECT_EQ(ToText(*ParseRequest(ToText(*parsed))), ToText(*parsed));
      }
    } else {
      const StatusOr<StepResult> parsed = ParseStepResult(text);
      num_refused += !parsed.ok();
      if (parsed.ok()) {
        EXPECT_EQ(ToText(*ParseStepResult(ToText(*parsed))), ToText(*parsed));
      }
    }
  }
  EXPECT_GT(num_refused, 10000);
}

}  // namespace
}  // namespace pagemill::step
