// File: cc/engine/testing/fake_runner_control.h
// A RunnerControl without weights, for tests of what calls one: it counts, and fails on request.
//
//   FakeRunnerControl control;
//   FakeRunner runner(FakeRunner::DefaultLimits(), &control);
//   control.FailNext(ResourceExhausted("no memory"));
//
// An update takes any sources; their texts are what sources() returns from then on, and where() is
// where it put them.
//
// Thread safety: that of RunnerControl; tests read it when the engine's call has returned.
#ifndef PAGEMILL_CC_ENGINE_TESTING_FAKE_RUNNER_CONTROL_H_
#define PAGEMILL_CC_ENGINE_TESTING_FAKE_RUNNER_CONTROL_H_

#include <functional>
#include <optional>
#include <utility>

#include "cc/engine/runner_control.h"

namespace pagemill::engine {

class FakeRunnerControl final : public RunnerControl {
 public:
  Status Sleep(KvMemory kv) override {
    PAGEMILL_RETURN_IF_ERROR(TakeFailure());
    asleep_ = kv;
    return OkStatus();
  }
  Status Wake() override {
    PAGEMILL_RETURN_IF_ERROR(TakeFailure());
    asleep_.reset();
    return OkStatus();
  }
  Status UpdateWeights(const WeightSources& sources, NewWeights where,
                       const std::function<Status()>& commit) override {
    PAGEMILL_RETURN_IF_ERROR(TakeFailure());
    PAGEMILL_RETURN_IF_ERROR(commit());
    sources_ = sources;
    where_ = where;
    Status status = std::exchange(device_failure_, OkStatus());
    if (!status.ok()) asleep_ = KvMemory::kKeep;
    return status;
  }

  // The next call returns this status and does nothing.
  void FailNext(Status status) { failure_ = std::move(status); }
  // The next update returns this status after its commit, and sleeps.
  void FailDevice(Status status) { device_failure_ = std::move(status); }
  const std::optional<KvMemory>& asleep() const { return asleep_; }
  const WeightSources& sources() const { return sources_; }
  NewWeights where() const { return where_; }

 private:
  Status TakeFailure() { return std::exchange(failure_, OkStatus()); }

  std::optional<KvMemory> asleep_;
  WeightSources sources_;
  NewWeights where_ = NewWeights::kBeside;
  Status failure_, device_failure_;
};

}  // namespace pagemill::engine

#endif  // PAGEMILL_CC_ENGINE_TESTING_FAKE_RUNNER_CONTROL_H_
