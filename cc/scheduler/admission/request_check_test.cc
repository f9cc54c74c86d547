#include "cc/scheduler/admission/request_check.h"

#include <memory>
#include <string>
#include <vector>

#include "cc/scheduler/stop_check.h"
#include "gtest/gtest.h"

namespace pagemill::scheduler {
namespace {

SchedulerOptions Options() {
  SchedulerOptions options;
  options.max_num_tokens = 50;
  options.max_num_logits_rows = 20;
  options.max_model_len = 100;
  options.vocab_size = 1000;
  options.kv_cache.num_blocks = 11;
  options.kv_cache.block_size = 16;
  return options;
}

step::Request MakeRequest(size_t prompt_size, int32_t max_tokens) {
  step::Request request;
  request.prompt_token_ids = std::vector<int32_t>(prompt_size, 5);
  request.sampling.max_tokens = max_tokens;
  return request;
}

Status Check(const SchedulerOptions& options, const step::Request& request) {
  const kv_cache::KvCacheManager cache(options.kv_cache);
  return RequestCheck(options, cache).Check(request);
}

void ExpectRefused(const Status& status, const std::vector<std::string>& parts) {
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  for (const std::string& part : parts) {
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
  }
}

TEST(RequestCheck, AcceptsUpToTheContext) {
  EXPECT_TRUE(Check(Options(), MakeRequest(99, 1)).ok());
  EXPECT_TRUE(Check(Options(), MakeRequest(1, 1)).ok());
  // More tokens than fit are wished for often; the request ends with "length".
  EXPECT_TRUE(Check(Options(), MakeRequest(50, 4000)).ok());
}

TEST(RequestCheck, NamesTheArithmeticOfTooLongRequests) {
  ExpectRefused(Check(Options(), MakeRequest(100, 16)),
                {"maximum context length is 100 tokens", "--max-model-len", "needs 116",
                 "100 in the prompt, 16 for the completion"});
  step::Request scored = MakeRequest(100, 0);
  scored.sampling.prompt_logprobs = 0;
  EXPECT_TRUE(Check(Options(), scored).ok());
  scored.prompt_token_ids.push_back(5);
  ExpectRefused(Check(Options(), scored), {"maximum context length is 100", "prompt has 101"});
}

TEST(RequestCheck, NamesThePoolThatIsTooSmall) {
  SchedulerOptions options = Options();
  options.kv_cache.num_blocks = 4;  // 48 tokens
  EXPECT_TRUE(Check(options, MakeRequest(47, 16)).ok());
  ExpectRefused(Check(options, MakeRequest(48, 16)),
                {"holds 48 tokens", "prompt alone has 48", "--kv-cache-memory-bytes"});
}

TEST(RequestCheck, RoutedExpertsNeedARunnerThatGivesThem) {
  step::Request request = MakeRequest(10, 1);
  request.return_routed_experts = true;
  ExpectRefused(Check(Options(), request), {"--enable-return-routed-experts"});
  SchedulerOptions options = Options();
  options.routed_experts_per_token = 4;
  EXPECT_TRUE(Check(options, request).ok());
}

TEST(RequestCheck, MediaItemsHaveTheFormThatTheModelTakes) {
  SchedulerOptions options = Options();
  options.max_encoder_tokens = 10;
  step::Request request = MakeRequest(20, 1);
  step::MediaItem item{"a", 2, 6};
  request.media = {item};
  EXPECT_TRUE(Check(options, request).ok()) << "a runner that encodes nothing takes any";
  options.media_formats = {{.rows = 3, .channels = 2, .tokens = 6}};
  ExpectRefused(Check(options, request), {"media item 0 has no features"});
  step::MediaFeatures features{.rows = 3, .channels = 2, .values = std::vector<float>(6)};
  const auto check = [&] {
    item.features = std::make_shared<step::MediaFeatures>(features);
    request.media = {item};
    return Check(options, request);
  };
  EXPECT_TRUE(check().ok());
  features.rows = 4;
  ExpectRefused(check(), {"features of 4 rows of 2 channels", "takes 3 rows of 2 channels"});
  features = {.rows = 3, .channels = 2, .values = std::vector<float>(5)};
  ExpectRefused(check(), {"media item 0 has features of"});
  features.values.resize(6);
  item.num_tokens = 5;
  ExpectRefused(check(), {"has 5 tokens, but an item of this model takes the place of 6"});
}

TEST(RequestCheck, ChecksPromptTokens) {
  ExpectRefused(Check(Options(), MakeRequest(0, 1)), {"prompt is empty"});
  for (int32_t bad : {-1, 1000}) {
    step::Request request = MakeRequest(3, 1);
    request.prompt_token_ids = {5, bad, 5};
    ExpectRefused(Check(Options(), request),
                  {"prompt token 1 is " + std::to_string(bad), "from 0 to 999"});
  }
}

TEST(RequestCheck, ChecksSamplingAndPriority) {
  step::Request request = MakeRequest(3, 1);
  request.sampling.temperature = -1;
  ExpectRefused(Check(Options(), request), {"temperature"});
  request = MakeRequest(3, 1);
  request.priority = 2;
  ExpectRefused(Check(Options(), request), {"priority is 2", "fcfs"});
}

TEST(RequestCheck, ParametersOfConnectorsAreBounded) {
  step::Request request = MakeRequest(3, 1);
  request.kv_transfer_params["key"] = std::string(step::kMaxKvTransferParamsBytes - 3, 'v');
  EXPECT_TRUE(Check(Options(), request).ok());
  request.kv_transfer_params["key"] += 'v';
  ExpectRefused(Check(Options(), request), {"kv_transfer_params", "1 entries of 4097", "4096"});
  request.kv_transfer_params.clear();
  for (size_t i = 0; i <= step::kMaxKvTransferParams; ++i) {
    request.kv_transfer_params[std::to_string(i)];
  }
  ExpectRefused(Check(Options(), request), {"kv_transfer_params", "33", "32"});
}

TEST(RequestCheck, TheSecondTextOfAPairBeginsInAPooledPrompt) {
  step::Request request = MakeRequest(3, 1);
  request.second_text_start = 1;
  ExpectRefused(Check(Options(), request), {"second_text_start is 1", "pooling request"});
  SchedulerOptions options = Options();
  options.pooling = true;
  request.pooling.emplace();
  for (int32_t good : {0, 1, 3}) {
    request.second_text_start = good;
    EXPECT_TRUE(Check(options, request).ok()) << good;
  }
  for (int32_t bad : {-1, 4}) {
    request.second_text_start = bad;
    ExpectRefused(Check(options, request), {"second_text_start", "prompt of 3"});
  }
}

TEST(RequestCheck, PoolingModelsPoolAndOthersDoNot) {
  step::Request request = MakeRequest(3, 1);
  SchedulerOptions options = Options();
  options.pooling = true;
  ExpectRefused(Check(options, request), {"embeddings"});
  request.pooling.emplace();
  request.sampling.temperature = -1;  // means nothing here
  EXPECT_TRUE(Check(options, request).ok());
  ExpectRefused(Check(Options(), request), {"embeddings"});
  SchedulerOptions both = Options();
  both.token_rows = true;
  EXPECT_TRUE(Check(both, request).ok());
  EXPECT_TRUE(Check(both, MakeRequest(3, 1)).ok());
  request.prompt_token_ids = std::vector<int32_t>(100, 5);
  EXPECT_TRUE(Check(options, request).ok());
  request.prompt_token_ids = std::vector<int32_t>(101, 5);
  ExpectRefused(Check(options, request), {"maximum context length"});
}

TEST(RequestCheck, UncutPromptsMustFitInOneStep) {
  SchedulerOptions options = Options();
  options.chunked_prefill = false;
  EXPECT_TRUE(Check(options, MakeRequest(50, 1)).ok());
  ExpectRefused(Check(options, MakeRequest(51, 1)), {"--max-num-batched-tokens", "51"});
  step::Request scored = MakeRequest(21, 1);
  scored.sampling.prompt_logprobs = 0;
  ExpectRefused(Check(options, scored), {"--max-num-logits-rows", "21"});
}

TEST(StopCheck, AppliesTheRulesInOrder) {
  step::SamplingParams p;
  p.max_tokens = 5;
  p.min_tokens = 3;
  p.eos_token_ids = {2, 3};
  p.stop_token_ids = {9, 3};
  const Stop eos{step::FinishReason::kStop, std::nullopt};
  const Stop length{step::FinishReason::kLength, std::nullopt};
  EXPECT_EQ(CheckStop(p, 2, 2, 10, 100), std::nullopt);  // min_tokens
  EXPECT_EQ(CheckStop(p, 9, 2, 10, 100), std::nullopt);
  EXPECT_EQ(CheckStop(p, 2, 3, 10, 100), eos);
  EXPECT_EQ(CheckStop(p, 3, 3, 10, 100), eos);  // EOS before the client's stop tokens
  EXPECT_EQ(CheckStop(p, 9, 3, 10, 100), (Stop{step::FinishReason::kStop, 9}));
  EXPECT_EQ(CheckStop(p, 4, 4, 10, 100), std::nullopt);
  EXPECT_EQ(CheckStop(p, 4, 5, 10, 100), length);
  EXPECT_EQ(CheckStop(p, 2, 5, 10, 100), eos);  // before max_tokens
  EXPECT_EQ(CheckStop(p, 4, 1, 100, 100), length);
  p.ignore_eos = true;
  EXPECT_EQ(CheckStop(p, 2, 3, 10, 100), std::nullopt);
  EXPECT_EQ(CheckStop(p, 3, 3, 10, 100), (Stop{step::FinishReason::kStop, 3}));
}

}  // namespace
}  // namespace pagemill::scheduler
