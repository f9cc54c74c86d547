// File: cc/engine/testing/fake_runner.h
// A Runner without a model, for tests of everything above the runner: step::FakeModel (a
// pseudo-model whose tokens depend on every token of the context, read through the block tables)
// behind the Runner interface, with failures, delays and hangs on request.
//
//   FakeRunner runner(FakeRunner::DefaultLimits());
//   auto engine = Engine::Create(EngineOptions{}, &runner, &clock, {});
//   ... EXPECT_EQ(tokens, step::FakeModel::Continue(prompt, tokens.size(), vocab_size));
//
// Thread safety: the injection methods may be called from any thread while an engine runs it.
#ifndef PAGEMILL_CC_ENGINE_TESTING_FAKE_RUNNER_H_
#define PAGEMILL_CC_ENGINE_TESTING_FAKE_RUNNER_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "cc/engine/runner.h"
#include "cc/step/fake_model.h"

namespace pagemill::engine {

class FakeRunner final : public Runner {
 public:
  // 64 usable blocks of 4 tokens, 8 requests, 32 tokens a step, a vocabulary of 97 tokens.
  static RunnerLimits DefaultLimits();

  // `control` outlives the runner.
  explicit FakeRunner(const RunnerLimits& limits, RunnerControl* control = nullptr);

  Status Execute(const step::StepPlan& plan) override;
  Status Sample() override;
  StatusOr<step::StepResult> Collect() override;

  // Forgets all requests and blocks, for another engine that starts at the beginning.
  void Restart();

  // The next Execute() (Sample(), Collect()) returns this status instead of working.
  void FailNextExecute(Status status);
  void FailNextSample(Status status);
  void FailNextCollect(Status status);
  // The next result of this request is a failure with this status.
  void FailRequest(step::RequestId id, Status status);
  // Collect() sleeps that long before it returns.
  void SetStepDelayMicros(int64_t micros);
  // While held, Collect() does not return: a hung device.
  void Hold();
  void Release();

  // The first call that broke the contract of runner.h or step_plan.h or the limits, as a sentence;
  // empty if none.
  std::string violation() const;
  int64_t num_steps() const;

 private:
  void ApplyInjectedFailure(const step::StepPlan& plan, step::StepResult* result);

  FakeRunner(const RunnerLimits& limits, std::unique_ptr<step::FakeModel> model,
             RunnerControl* control);
  Status Violate(std::string what);

  mutable std::mutex mutex_;
  std::condition_variable released_;
  bool held_ = false;
  int64_t delay_micros_ = 0;
  int64_t num_steps_ = 0;
  Status fail_execute_;
  Status fail_sample_;
  Status fail_collect_;
  std::optional<std::pair<step::RequestId, Status>> fail_request_;
  std::string violation_;
  std::unordered_map<step::RequestIndex, step::RequestId> ids_;  // which request a slot holds
  const std::unique_ptr<step::FakeModel> model_;
  std::optional<step::StepResult> executed_;  // and not sampled
  std::deque<step::StepResult> sampled_;      // and not collected
};

}  // namespace pagemill::engine

#endif  // PAGEMILL_CC_ENGINE_TESTING_FAKE_RUNNER_H_
