// Streaming input and sessions of several turns.
#include <string>
#include <vector>

#include "cc/scheduler/testing/scheduler_fixture.h"
#include "gtest/gtest.h"

namespace pagemill::scheduler {
namespace {

using Tokens = std::vector<int32_t>;

class InputsTest : public SchedulerTest {
 protected:
  // A request whose prompt is the first part of its input.
  void AddStreaming(uint64_t id, int32_t prompt_size, int32_t max_tokens) {
    Request request = MakeRequest(id, prompt_size, max_tokens);
    request.streaming_input = true;
    context_ = request.prompt_token_ids.ToVector();
    Add(request);
  }
  void Extend(const Tokens& tokens, InputPart part) {
    const Status status = scheduler_->Extend(RequestId(1), {tokens, {}, part});
    ASSERT_TRUE(status.ok()) << status.ToString();
    context_.insert(context_.end(), tokens.begin(), tokens.end());
    EXPECT_TRUE(scheduler_->CheckIntegrity().ok());
  }
  // Steps until the turn of request 1, or all of it, is over: its tokens, which become context.
  Tokens Turn() {
    Tokens tokens;
    for (int i = 0; i < 100; ++i) {
      Step();
      for (const RequestEvent& event : events_) {
        if (event.id != RequestId(1)) continue;
        tokens.insert(tokens.end(), event.new_token_ids.begin(), event.new_token_ids.end());
        if (!event.turn_finished && !event.finish_reason) continue;
        EXPECT_EQ(tokens, FakeModel::Continue(context_, tokens.size(), 97));
        context_.insert(context_.end(), tokens.begin(), tokens.end());
        return tokens;
      }
    }
    ADD_FAILURE() << "the turn does not end";
    return tokens;
  }
  int64_t num_awaiting() const {
    return scheduler_->stats().num_parked[static_cast<size_t>(ParkReason::kAwaitingInput)];
  }
  StatusCode ExtendCode(uint64_t id, const Tokens& tokens, InputPart part) {
    return scheduler_->Extend(RequestId(id), {tokens, {}, part}).code();
  }

  Tokens context_;  // of request 1
};

TEST_F(InputsTest, AwaitingInputHoldsNothingAndGoesOnWithIt) {
  Start(SmallOptions());
  AddStreaming(1, 10, 3);
  EXPECT_EQ(Step(), "1:10");
  EXPECT_FALSE(plan_.scheduled[0].sample);
  EXPECT_TRUE(events_.empty());
  EXPECT_EQ(num_awaiting(), 1);
  EXPECT_EQ(scheduler_->stats().kv_blocks_used, 0);
  EXPECT_EQ(Step(), "");
  Extend({5, 6, 7}, InputPart::kMore);
  EXPECT_EQ(Step(), "1:5");  // two full blocks of the first part are cached
  EXPECT_EQ(num_awaiting(), 1);
  Extend({8}, InputPart::kLast);
  EXPECT_EQ(Turn().size(), 3u);
  EXPECT_FALSE(scheduler_->HasWork());
}

TEST_F(InputsTest, InputThatComesWhileTheRequestRunsIsNotLost) {
  Start(SmallOptions());
  AddStreaming(1, 20, 3);
  EXPECT_EQ(Step(), "1:16");
  Extend({5, 6}, InputPart::kMore);
  Extend({7}, InputPart::kLast);
  EXPECT_EQ(Step(), "1:4");
  EXPECT_EQ(num_awaiting(), 0);
  EXPECT_EQ(Turn().size(), 3u);
}

TEST_F(InputsTest, InputThatComesBeforeTheStartIsPartOfThePrompt) {
  Start(SmallOptions());
  AddStreaming(1, 4, 3);
  Extend({5, 6}, InputPart::kLast);
  EXPECT_EQ(Step(), "1:6");
  EXPECT_TRUE(plan_.scheduled[0].sample);
}

TEST_F(InputsTest, TheEndMayComeWithoutTokens) {
  Start(SmallOptions());
  AddStreaming(1, 9, 3);
  Step();
  Extend({}, InputPart::kLast);
  EXPECT_EQ(Schedule(), "1:1");  // the last token again, now with a sample
  Finish();
  EXPECT_EQ(events_[0].new_token_ids, FakeModel::Continue(context_, 1, 97));
}

TEST_F(InputsTest, TheEndMayComeWhileTheLastTokensAreInFlight) {
  Start(SmallOptions());
  AddStreaming(1, 9, 3);
  EXPECT_EQ(Schedule(), "1:9");
  Extend({}, InputPart::kLast);
  Finish();
  EXPECT_EQ(Turn().size(), 3u);
}

TEST_F(InputsTest, TurnsFollowOneAnotherWithTheirOutputsAsContext) {
  Start(SmallOptions());
  AddStreaming(1, 6, 3);
  Extend({}, InputPart::kTurn);
  EXPECT_EQ(Turn().size(), 3u);
  EXPECT_EQ(events_[0].turn_finished, FinishReason::kLength);
  EXPECT_FALSE(events_[0].finish_reason);
  EXPECT_EQ(num_awaiting(), 1);
  EXPECT_EQ(scheduler_->stats().kv_blocks_used, 0);
  Extend({50, 51}, InputPart::kTurn);
  EXPECT_EQ(Turn().size(), 3u);
  EXPECT_TRUE(events_[0].turn_finished);
  EXPECT_GT(scheduler_->stats().num_waiting + num_awaiting(), 0);
  Extend({52}, InputPart::kLast);
  EXPECT_EQ(Turn().size(), 3u);
  EXPECT_EQ(events_[0].finish_reason, FinishReason::kLength);
  EXPECT_FALSE(scheduler_->HasWork());
}

TEST_F(InputsTest, ATurnThatFillsTheContextEndsTheRequest) {
  SchedulerOptions options = SmallOptions();
  options.max_model_len = 9;
  Start(options);
  AddStreaming(1, 6, 20);
  Extend({}, InputPart::kTurn);
  EXPECT_EQ(Turn().size(), 3u);
  EXPECT_EQ(events_[0].finish_reason, FinishReason::kLength);
}

TEST_F(InputsTest, ARequestThatAwaitsInputCanBeAborted) {
  Start(SmallOptions());
  AddStreaming(1, 6, 3);
  Step();
  EXPECT_TRUE(scheduler_->Abort(RequestId(1), &events_));
  EXPECT_FALSE(scheduler_->HasWork());
  EXPECT_TRUE(scheduler_->CheckIntegrity().ok());
}

TEST_F(InputsTest, APreemptedRequestTakesItsPendingInputAlong) {
  Start(SmallOptions());
  AddStreaming(1, 20, 3);
  Step();
  Extend({5, 6}, InputPart::kLast);
  EXPECT_TRUE(scheduler_->ResetPrefixCache(/*preempt_running=*/true));
  EXPECT_EQ(Step(), "1:16");
  EXPECT_EQ(Turn().size(), 3u);
}

TEST_F(InputsTest, Refusals) {
  Start(SmallOptions());
  Add(MakeRequest(2, 4, 3));
  AddStreaming(1, 4, 3);
  EXPECT_EQ(ExtendCode(9, {1}, InputPart::kMore), StatusCode::kNotFound);
  EXPECT_EQ(ExtendCode(2, {1}, InputPart::kMore), StatusCode::kFailedPrecondition);
  EXPECT_EQ(ExtendCode(1, {}, InputPart::kMore), StatusCode::kInvalidArgument);
  EXPECT_EQ(ExtendCode(1, {97}, InputPart::kMore), StatusCode::kInvalidArgument);
  EXPECT_EQ(ExtendCode(1, Tokens(60, 1), InputPart::kMore), StatusCode::kInvalidArgument);
  Extend({1}, InputPart::kTurn);
  EXPECT_EQ(ExtendCode(1, {1}, InputPart::kMore), StatusCode::kFailedPrecondition);  // it generates
  Turn();
  EXPECT_EQ(ExtendCode(1, {}, InputPart::kTurn), StatusCode::kInvalidArgument);
  Extend({1}, InputPart::kLast);
  EXPECT_EQ(ExtendCode(1, {1}, InputPart::kMore), StatusCode::kFailedPrecondition);  // complete
}

TEST_F(InputsTest, StreamingGoesWithGeneratedTokensOnly) {
  Start(SmallOptions());
  Request request = MakeRequest(1, 4, 3);
  request.streaming_input = true;
  request.sampling.prompt_logprobs = 0;
  EXPECT_EQ(scheduler_->Add(request).code(), StatusCode::kInvalidArgument);
  request.sampling.max_tokens = 0;
  EXPECT_EQ(scheduler_->Add(request).code(), StatusCode::kInvalidArgument);
  SchedulerOptions options = SmallOptions();
  options.chunked_prefill = false;
  Start(options);
  request = MakeRequest(1, 4, 3);
  request.streaming_input = true;
  EXPECT_EQ(scheduler_->Add(request).code(), StatusCode::kInvalidArgument);
}

TEST_F(InputsTest, ExtendingCopiesTheChunkAndNotWhatCameBefore) {
  SchedulerOptions options = SmallOptions();
  options.max_model_len = 4000;
  options.kv_cache.num_blocks = 1001;
  Start(options);
  AddStreaming(1, 4, 1);
  size_t num_copied = 0, size = 4;
  const int32_t* tokens = nullptr;
  for (int chunk = 0; chunk < 500; ++chunk) {
    while (!Step().empty()) {
    }
    ASSERT_NO_FATAL_FAILURE(Extend({5, 6, 7}, InputPart::kMore));
    size += 3;
    Schedule();
    const Request& longer = *plan_.scheduled[0].start;
    ASSERT_EQ(longer.prompt_token_ids.size(), size);
    if (longer.prompt_token_ids.data() != tokens) num_copied += size;
    tokens = longer.prompt_token_ids.data();
    Finish();
  }
  // All of the prompt each time would be 375,000 tokens.
  EXPECT_LE(num_copied, 4 * size);
  Extend({8}, InputPart::kLast);
  EXPECT_EQ(Turn().size(), 1u);
}

TEST_F(InputsTest, StepsInFlightKeepTheRequestAsItWas) {
  Start(SmallOptions());
  AddStreaming(1, 8, 3);
  Step();
  const std::shared_ptr<const Request> before = plan_.scheduled[0].start;
  ASSERT_NE(before, nullptr);
  Extend({5, 6}, InputPart::kLast);
  EXPECT_EQ(before->prompt_token_ids.size(), 8u);
  EXPECT_EQ(Turn().size(), 3u);
}

TEST_F(InputsTest, AChunkBringsMediaBehindThoseOfThePrompt) {
  SchedulerOptions options = SmallOptions();
  options.max_encoder_tokens = 8;
  options.encoder_cache_tokens = 8;
  Start(options);
  AddStreaming(1, 5, 2);
  EXPECT_EQ(Step(), "1:5");
  ASSERT_TRUE(
      scheduler_->Extend(RequestId(1), {{1, 1, 1, 2}, {{"a", 0, 3}}, InputPart::kMore}).ok());
  Schedule();
  // Before the chunk is computed, another one comes: its item counts from its own first token.
  ASSERT_TRUE(scheduler_->Extend(RequestId(1), {{3, 1, 1}, {{"b", 1, 2}}, InputPart::kTurn}).ok());
  EXPECT_EQ(plan_.scheduled[0].media_to_encode, std::vector<int32_t>{0});
  Finish();
  EXPECT_EQ(Schedule(), "1:4") << "one block of four is filled and found: tokens 8 to 11";
  ASSERT_NE(plan_.scheduled[0].start, nullptr);
  const Request& longer = *plan_.scheduled[0].start;
  ASSERT_EQ(longer.media.size(), 2u);
  EXPECT_EQ(longer.media[0].first_token, 5);
  EXPECT_EQ(longer.media[1].first_token, 10);
  EXPECT_EQ(plan_.scheduled[0].media_to_encode, std::vector<int32_t>{1});
  context_ = longer.prompt_token_ids.ToVector();
  Finish();
  std::vector<int32_t> tokens = events_.at(0).new_token_ids.ToVector();
  while (!events_.at(0).turn_finished) {
    Step();
    ASSERT_EQ(events_.size(), 1u);
    ASSERT_FALSE(events_[0].new_token_ids.empty());
    tokens.push_back(events_[0].new_token_ids[0]);
  }
  EXPECT_EQ(tokens.size(), 2u);
}

TEST_F(InputsTest, AChunkIsCheckedByItself) {
  SchedulerOptions options = SmallOptions();
  options.max_encoder_tokens = 4;
  Start(options);
  AddStreaming(1, 5, 2);
  Step();
  const auto error = [&](InputChunk chunk) {
    const Status status = scheduler_->Extend(RequestId(1), std::move(chunk));
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return status.message();
  };
  EXPECT_NE(error({{1, 97}}).find("prompt token 6 is 97"), std::string::npos);
  EXPECT_NE(error({std::vector<int32_t>(59, 1)}).find("maximum context length"), std::string::npos);
  EXPECT_NE(error({{1, 1}, {{"a", 1, 2}}}).find("within the chunk of 2"), std::string::npos);
  EXPECT_NE(error({std::vector<int32_t>(9, 1), {{"a", 1, 5}}}).find("max_encoder_tokens"),
            std::string::npos);
  Extend({1, 2}, InputPart::kLast);
}

}  // namespace
}  // namespace pagemill::scheduler
