#include "cc/engine/output_codec.h"

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace pagemill::engine {
namespace {

using Random = std::mt19937;

std::vector<step::TokenLogprobs> RandomLogprobs(Random* random) {
  std::vector<step::TokenLogprobs> entries((*random)() % 4);
  for (step::TokenLogprobs& entry : entries) {
    entry.token_id = static_cast<int32_t>((*random)());
    entry.logprob = -static_cast<float>((*random)() % 1000) / 7;
    entry.rank = static_cast<int32_t>((*random)() % 50'000);
    for (uint32_t i = (*random)() % 4; i > 0; --i) {
      entry.top.emplace_back(static_cast<int32_t>((*random)() % 1000), -1.5f * i);
    }
  }
  return entries;
}

RequestOutput RandomOutput(Random* random) {
  const auto chance = [random] { return (*random)() % 3 == 0; };
  RequestOutput output;
  output.request_id = step::RequestId(uint64_t{(*random)()} << ((*random)() % 33));
  for (uint32_t i = (*random)() % 5; i > 0; --i) {
    output.new_token_ids.push_back(static_cast<int32_t>((*random)()));
  }
  if (chance()) output.logprobs = RandomLogprobs(random);
  if (chance()) output.prompt_logprobs = RandomLogprobs(random);
  if (chance()) output.pooled = std::vector<float>((*random)() % 9, -0.25f);
  if (chance()) output.turn_finished = step::FinishReason::kLength;
  if (chance()) {
    output.finish_reason = static_cast<step::FinishReason>((*random)() % step::kNumFinishReasons);
  }
  if (chance()) output.stop_token_id = -static_cast<int32_t>((*random)() % 100);
  if (chance()) output.error = ResourceExhausted("caf\xC3\xA9 is full").WithRetryAfter(7);
  if (chance()) output.kv_transfer_params = {{"peer", ""}, {"", "a"}};
  if (chance()) output.num_cached_tokens = static_cast<int32_t>((*random)() % 1000);
  if (chance()) output.num_evicted_tokens = static_cast<int32_t>((*random)() % 1000);
  if (chance()) output.num_draft_steps = 30;
  if (chance()) output.num_draft_tokens = 70;
  if (chance()) output.num_accepted_draft_tokens = 7;
  if (chance()) output.queued_s = 0.125 * ((*random)() % 100);
  if (chance()) output.decode_s = -0.0;
  if (chance()) output.weight_versions = {{0, ""}, {17, "step-2"}};
  if (chance()) output.routed_experts = {0, 63, 64, 65'535};
  return output;
}

std::vector<RequestOutput> RandomBatch(Random* random) {
  std::vector<RequestOutput> outputs((*random)() % 6);
  for (RequestOutput& output : outputs) output = RandomOutput(random);
  return outputs;
}

TEST(OutputCodec, AnOutputOfOneTokenIsSmall) {
  std::vector<RequestOutput> outputs(1);
  outputs[0].request_id = step::RequestId(100'000);
  outputs[0].new_token_ids = {50'000};
  outputs[0].num_cached_tokens = 16;
  EXPECT_LE(EncodeOutputs(outputs).size(), 12u);
}

TEST(OutputCodec, TheBytesAreTheSameEverywhere) {
  std::vector<RequestOutput> outputs(1);
  outputs[0].request_id = step::RequestId(300);
  outputs[0].new_token_ids = {-1, 64};
  outputs[0].pooled = {1.0f};
  EXPECT_EQ(EncodeOutputs(outputs),
            std::string("\x01\xAC\x02\x09\x02\x01\x80\x01\x01\0\0\x80?", 13));
}

// An encoding is one-to-one, so that equal bytes mean equal outputs.
TEST(OutputCodec, RandomBatchesSurvive) {
  Random random(1);
  for (int i = 0; i < 2000; ++i) {
    const std::vector<RequestOutput> outputs = RandomBatch(&random);
    const std::string bytes = EncodeOutputs(outputs);
    const StatusOr<std::vector<RequestOutput>> decoded = DecodeOutputs(bytes);
    ASSERT_TRUE(decoded.ok());
    ASSERT_EQ(decoded->size(), outputs.size());
    ASSERT_EQ(EncodeOutputs(*decoded), bytes);
    for (size_t at = 0; at < outputs.size(); ++at) {
      const RequestOutput &sent = outputs[at], &got = (*decoded)[at];
      ASSERT_EQ(got.request_id, sent.request_id);
      ASSERT_EQ(got.new_token_ids, sent.new_token_ids);
      ASSERT_EQ(got.logprobs.has_value(), sent.logprobs.has_value());
      ASSERT_EQ(got.pooled, sent.pooled);
      ASSERT_EQ(got.finish_reason, sent.finish_reason);
      ASSERT_EQ(got.turn_finished, sent.turn_finished);
      ASSERT_EQ(got.stop_token_id, sent.stop_token_id);
      ASSERT_EQ(got.error, sent.error);
      ASSERT_EQ(got.queued_s, sent.queued_s);
      ASSERT_EQ(got.routed_experts, sent.routed_experts);
    }
  }
}

TEST(OutputCodec, TruncatedBytesAreRefused) {
  Random random(2);
  for (int i = 0; i < 200; ++i) {
    const std::string bytes = EncodeOutputs(RandomBatch(&random));
    for (size_t size = 0; size < bytes.size(); ++size) {
      ASSERT_FALSE(DecodeOutputs(std::string_view(bytes).substr(0, size)).ok());
    }
    ASSERT_FALSE(DecodeOutputs(bytes + '\0').ok());
  }
}

// Whatever is decoded from damaged bytes is a value that can be encoded again.
TEST(OutputCodec, GarbageIsRefusedOrSomethingElse) {
  Random random(3);
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes = EncodeOutputs(RandomBatch(&random));
    for (uint32_t flips = 1 + random() % 4; flips > 0; --flips) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    const StatusOr<std::vector<RequestOutput>> decoded = DecodeOutputs(bytes);
    if (decoded.ok()) EncodeOutputs(*decoded);
  }
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes(random() % 40, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    const StatusOr<std::vector<RequestOutput>> decoded = DecodeOutputs(bytes);
    if (decoded.ok()) EncodeOutputs(*decoded);
  }
}

TEST(OutputCodec, SizesAloneAllocateNothing) {
  // 2^56 outputs; one output whose list of tokens has 2^56 entries.
  EXPECT_FALSE(DecodeOutputs("\x80\x80\x80\x80\x80\x80\x80\x80\x01").ok());
  EXPECT_FALSE(DecodeOutputs("\x01\x01\x01\x80\x80\x80\x80\x80\x80\x80\x80\x01").ok());
}

TEST(OutputCodec, TheSchemaNamesEveryField) {
  EXPECT_NE(OutputSchema().find(" new_token_ids "), std::string::npos);
  EXPECT_NE(OutputSchema().find(" decode_s"), std::string::npos);
}

}  // namespace
}  // namespace pagemill::engine
