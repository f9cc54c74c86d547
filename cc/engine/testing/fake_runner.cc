#include "cc/engine/testing/fake_runner.h"

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>

namespace pagemill::engine {
namespace {

step::FakeModel::Options ModelOptions(const RunnerLimits& limits) {
  step::FakeModel::Options options;
  options.num_blocks = limits.num_blocks;
  options.block_size = limits.block_size;
  options.max_num_seqs = limits.max_num_seqs;
  options.vocab_size = limits.vocab_size;
  options.max_num_tokens = limits.max_num_tokens;
  options.max_num_logits_rows = limits.max_num_logits_rows;
  options.chunked_prefill = limits.chunked_prefill;
  options.max_draft_tokens = limits.max_draft_tokens;
  options.token_rows = limits.token_rows;
  return options;
}

}  // namespace

RunnerLimits FakeRunner::DefaultLimits() {
  RunnerLimits limits;
  limits.max_num_tokens = 32;
  limits.max_num_seqs = 8;
  limits.max_num_logits_rows = 32;
  limits.max_model_len = 128;
  limits.vocab_size = 97;
  limits.num_blocks = 65;
  limits.block_size = 4;
  limits.placeholders = true;
  limits.routed_experts_per_token = step::FakeModel::kRoutedExpertsPerToken;
  return limits;
}

FakeRunner::FakeRunner(const RunnerLimits& limits, RunnerControl* control)
    : FakeRunner(limits, std::make_unique<step::FakeModel>(ModelOptions(limits)), control) {}

FakeRunner::FakeRunner(const RunnerLimits& limits, std::unique_ptr<step::FakeModel> model,
                       RunnerControl* control)
    : Runner(limits, model.get(), control), model_(std::move(model)) {}

Status FakeRunner::Violate(std::string what) {
  if (violation_.empty()) violation_ = what;
  return Internal(std::move(what));
}

Status FakeRunner::Execute(const step::StepPlan& plan) {
  std::lock_guard lock(mutex_);
  ++num_steps_;
  if (executed_) return Violate("Execute() before Sample() of the step before");
  if (!fail_execute_.ok()) {
    model_->Skip(plan);
    return std::exchange(fail_execute_, OkStatus());
  }
  StatusOr<step::StepResult> result = model_->Run(plan);
  if (!result.ok()) return Violate(std::string(result.status().message()));
  ApplyInjectedFailure(plan, &*result);
  executed_ = std::move(*result);
  return OkStatus();
}

Status FakeRunner::Sample() {
  std::lock_guard lock(mutex_);
  if (!executed_) return Violate("Sample() without an executed step");
  step::StepResult result = *std::exchange(executed_, std::nullopt);
  if (!fail_sample_.ok()) return std::exchange(fail_sample_, OkStatus());
  sampled_.push_back(std::move(result));
  return OkStatus();
}

void FakeRunner::ApplyInjectedFailure(const step::StepPlan& plan, step::StepResult* result) {
  for (const step::ScheduledRequest& entry : plan.scheduled) {
    if (entry.start) ids_[entry.index] = entry.start->id;
  }
  if (!fail_request_) return;
  for (step::RequestResult& answer : result->results) {
    if (ids_[answer.index] != fail_request_->first) continue;
    answer.failure = fail_request_->second;
    fail_request_.reset();
    return;
  }
}

StatusOr<step::StepResult> FakeRunner::Collect() {
  std::unique_lock lock(mutex_);
  if (delay_micros_ > 0) {
    const auto delay = std::chrono::microseconds(delay_micros_);
    lock.unlock();
    std::this_thread::sleep_for(delay);
    lock.lock();
  }
  released_.wait(lock, [this] { return !held_; });
  if (sampled_.empty()) return Violate("Collect() without a sampled step");
  step::StepResult result = std::move(sampled_.front());
  sampled_.pop_front();
  if (!fail_collect_.ok()) return std::exchange(fail_collect_, OkStatus());
  return result;
}

void FakeRunner::Restart() {
  std::lock_guard lock(mutex_);
  model_->Restart();
  executed_.reset();
  sampled_.clear();
}

void FakeRunner::FailNextExecute(Status status) {
  std::lock_guard lock(mutex_);
  fail_execute_ = std::move(status);
}

void FakeRunner::FailNextSample(Status status) {
  std::lock_guard lock(mutex_);
  fail_sample_ = std::move(status);
}

void FakeRunner::FailNextCollect(Status status) {
  std::lock_guard lock(mutex_);
  fail_collect_ = std::move(status);
}

void FakeRunner::FailRequest(step::RequestId id, Status status) {
  std::lock_guard lock(mutex_);
  fail_request_ = {id, std::move(status)};
}

void FakeRunner::SetStepDelayMicros(int64_t micros) {
  std::lock_guard lock(mutex_);
  delay_micros_ = micros;
}

void FakeRunner::Hold() {
  std::lock_guard lock(mutex_);
  held_ = true;
}

void FakeRunner::Release() {
  {
    std::lock_guard lock(mutex_);
    held_ = false;
  }
  released_.notify_all();
}

std::string FakeRunner::violation() const {
  std::lock_guard lock(mutex_);
  return violation_;
}

int64_t FakeRunner::num_steps() const {
  std::lock_guard lock(mutex_);
  return num_steps_;
}

}  // namespace pagemill::engine
