// File: cc/runner/testing/steps_in_flight.h
// Tests of the native runner over an executor of several steps in flight, plan by plan.
//
//   TEST_F(StepsInFlightTest, ...) {
//     ASSERT_TRUE(Begin({Start(/*slot=*/0, MakeRequest({1, 2}))}).ok());
//     ASSERT_TRUE(Begin({GoOn(0, /*num_computed=*/2)}).ok());
//     EXPECT_EQ(runner_->Collect()->results[0].sampled_token_ids, Continue({1, 2}, 1));
//   }
#ifndef PAGEMILL_CC_RUNNER_TESTING_STEPS_IN_FLIGHT_H_
#define PAGEMILL_CC_RUNNER_TESTING_STEPS_IN_FLIGHT_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/status.h"
#include "cc/device/capabilities.h"
#include "cc/device/thread_pool.h"
#include "cc/engine/runner.h"
#include "cc/program/executor.h"
#include "cc/runner/model_runner.h"
#include "cc/runner/testing/context_executor.h"
#include "cc/sampling/sampler.h"
#include "cc/sampling/testing/hash_model.h"
#include "cc/step/request.h"
#include "cc/step/step_plan.h"

namespace pagemill::runner {

using step::BlockId;
using step::RequestIndex;
using step::ScheduledRequest;

inline constexpr int32_t kVocab = 11;

inline engine::RunnerLimits SmallLimits() {
  engine::RunnerLimits limits;
  limits.max_num_tokens = 32;
  limits.max_num_seqs = 4;
  limits.max_num_logits_rows = 16;
  limits.max_model_len = 16;
  limits.vocab_size = kVocab;
  limits.num_blocks = 20;
  limits.block_size = 16;
  return limits;
}

inline std::shared_ptr<step::Request> MakeRequest(std::vector<int32_t> prompt,
                                                  float temperature = 0) {
  auto request = std::make_shared<step::Request>();
  request->prompt_token_ids = std::move(prompt);
  request->sampling.temperature = temperature;
  request->sampling.seed = 31;
  return request;
}

// One that needs the host: for the log probabilities of all tokens.
inline std::shared_ptr<step::Request> MakeHostRequest(std::vector<int32_t> prompt) {
  auto request = MakeRequest(std::move(prompt), 1.0f);
  request->sampling.logprobs = step::SamplingParams::kAllLogprobs;
  return request;
}

inline ScheduledRequest Start(int32_t slot, const std::shared_ptr<step::Request>& request) {
  ScheduledRequest entry;
  entry.index = RequestIndex(slot);
  entry.start = request;
  entry.token_ids = request->prompt_token_ids.ToVector();
  entry.new_block_ids = {{BlockId(1 + slot)}};
  entry.sample = true;
  return entry;
}

// The token behind `num_computed` others, which the step before samples.
inline ScheduledRequest GoOn(int32_t slot, int32_t num_computed) {
  ScheduledRequest entry;
  entry.index = RequestIndex(slot);
  entry.num_computed_tokens = num_computed;
  entry.token_ids = {step::kPlaceholderTokenId};
  entry.sample = true;
  return entry;
}

class StepsInFlightTest : public ::testing::Test {
 protected:
  StepsInFlightTest() {
    executor_.on_enqueue = [this](const ops::StepBatch&) {
      trace_ += "enqueue ";
      return OkStatus();
    };
    executor_.on_collect = [this] {
      trace_ += "collect ";
      return std::exchange(next_collect_, OkStatus());
    };
    executor_.on_sample = [this](const program::StepDraws&) {
      trace_ += "sample ";
      return std::exchange(next_sample_, OkStatus());
    };
    runner_ = *ModelRunner::Create(&executor_, &pool_, SmallLimits());
  }

  Status Begin(std::vector<ScheduledRequest> entries, std::vector<RequestIndex> released = {}) {
    step::StepPlan plan;
    plan.step_id = ++step_id_;
    plan.scheduled = std::move(entries);
    plan.released = std::move(released);
    PAGEMILL_RETURN_IF_ERROR(runner_->Execute(plan));
    return runner_->Sample();
  }

  // The greedy tokens behind a text.
  std::vector<int32_t> Continue(std::vector<int32_t> text, size_t count) const {
    std::vector<int32_t> tokens;
    while (tokens.size() < count) {
      const std::vector<float> logits = model_.Logits(text);
      text.push_back(
          static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
      tokens.push_back(text.back());
    }
    return tokens;
  }

  // What a host samples behind a text.
  std::vector<sampling::RowOutput> Sample(const step::Request& request, size_t count) const {
    sampling::Sampler sampler(
        {.max_num_seqs = 1, .vocab_size = kVocab, .capabilities = device::DetectCapabilities()},
        &pool_);
    sampler.Start(RequestIndex(0), std::make_shared<step::Request>(request), {});
    std::vector<int32_t> text = request.prompt_token_ids.ToVector();
    std::vector<sampling::RowOutput> outputs(count);
    for (sampling::RowOutput& output : outputs) {
      const std::vector<float> logits = model_.Logits(text);
      const sampling::LogitsRow row = {.index = RequestIndex(0), .logits = logits.data()};
      sampler.Run({&row, 1}, {&output, 1});
      text.push_back(output.token_id);
    }
    return outputs;
  }
  std::vector<int32_t> Draw(const step::Request& request, size_t count) const {
    std::vector<int32_t> tokens;
    for (const auto& output : Sample(request, count)) tokens.push_back(output.token_id);
    return tokens;
  }

  const sampling::HashModel model_{{.vocab_size = kVocab}};
  ContextExecutor executor_{&model_, 20 * 16, /*max_steps_in_flight=*/2};
  mutable device::ThreadPool pool_{{.num_threads = 1}};
  std::unique_ptr<ModelRunner> runner_;
  Status next_collect_, next_sample_;
  std::string trace_;
  uint64_t step_id_ = 0;
};

}  // namespace pagemill::runner

#endif  // PAGEMILL_CC_RUNNER_TESTING_STEPS_IN_FLIGHT_H_
