// File: cc/scheduler/testing/scheduler_fixture.h
// What the scheduler's tests share: a scheduler beside a FakeModel, stepped by hand.
#ifndef PAGEMILL_CC_SCHEDULER_TESTING_SCHEDULER_FIXTURE_H_
#define PAGEMILL_CC_SCHEDULER_TESTING_SCHEDULER_FIXTURE_H_

#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "cc/scheduler/scheduler.h"
#include "cc/step/fake_model.h"
#include "gtest/gtest.h"

namespace pagemill::scheduler {

using step::FakeModel;
using step::FinishReason;
using step::Request;
using step::RequestId;
using step::ScheduledRequest;

inline SchedulerOptions SmallOptions() {
  SchedulerOptions options;
  options.max_num_tokens = 16;
  options.max_num_seqs = 4;
  options.max_num_logits_rows = 8;
  options.max_model_len = 64;
  options.vocab_size = 97;
  options.max_waiting_requests = 4;
  options.kv_cache.num_blocks = 33;
  options.kv_cache.block_size = 4;
  return options;
}

// Different prompts for ids with different last digits.
inline Request MakeRequest(uint64_t id, int32_t prompt_size, int32_t max_tokens) {
  Request request;
  request.id = RequestId(id);
  std::vector<int32_t> prompt(static_cast<size_t>(prompt_size));
  std::iota(prompt.begin(), prompt.end(), static_cast<int32_t>(id % 10));
  request.prompt_token_ids = std::move(prompt);
  request.sampling.max_tokens = max_tokens;
  return request;
}

class SchedulerTest : public testing::Test {
 protected:
  void Start(const SchedulerOptions& options) {
    auto scheduler = Scheduler::Create(options);
    ASSERT_TRUE(scheduler.ok()) << scheduler.status().ToString();
    scheduler_ = std::move(*scheduler);
    FakeModel::Options model;
    model.num_blocks = options.kv_cache.num_blocks;
    model.block_size = options.kv_cache.block_size;
    model.max_num_seqs = options.max_num_seqs;
    model.max_num_tokens = options.max_num_tokens;
    model.max_num_logits_rows = options.max_num_logits_rows;
    model.max_encoder_tokens = options.max_encoder_tokens;
    model.encoder_cache_tokens = options.EncoderCacheTokens();
    model.chunked_media_input = options.chunked_media_input;
    model.max_adapters = options.max_adapters;
    model.max_draft_tokens = options.max_draft_tokens;
    model_ = std::make_unique<FakeModel>(model);
  }

  void Add(const Request& request) {
    const Status status = scheduler_->Add(request);
    ASSERT_TRUE(status.ok()) << status.ToString();
  }

  // "id:tokens" for each entry of the next plan.
  std::string Schedule(StepBudget budget = {}) {
    scheduler_->Schedule(&plan_, budget);
    std::string text;
    for (const ScheduledRequest& entry : plan_.scheduled) {
      if (entry.start) ids_[entry.index.value()] = entry.start->id.value();
      text += (text.empty() ? "" : " ") + std::to_string(ids_[entry.index.value()]) + ":" +
              std::to_string(entry.num_tokens());
    }
    return text;
  }

  // Runs the plan and reports it. Events are those of this step.
  void Finish() {
    events_.clear();
    StatusOr<step::StepResult> result = model_->Run(plan_);
    ASSERT_TRUE(result.ok()) << result.status().ToString();
    scheduler_->Update(std::move(*result), &events_);
    const Status status = scheduler_->CheckIntegrity();
    ASSERT_TRUE(status.ok()) << status.ToString();
  }

  std::string Step(StepBudget budget = {}) {
    const std::string text = Schedule(budget);
    if (!plan_.empty()) Finish();
    return text;
  }

  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<FakeModel> model_;
  step::StepPlan plan_;
  std::vector<RequestEvent> events_;
  uint64_t ids_[64] = {};
};

}  // namespace pagemill::scheduler

#endif  // PAGEMILL_CC_SCHEDULER_TESTING_SCHEDULER_FIXTURE_H_
