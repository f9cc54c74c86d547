#include "cc/engine/rest_task.h"

#include <algorithm>
#include <chrono>
#include <string>

namespace pagemill::engine {

Status RestTask::Wait(double timeout_s) {
  constexpr double kLongest = 1e8;
  const std::chrono::duration<double> timeout(timeout_s > 0 ? std::min(timeout_s, kLongest) : 0);
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, timeout, [this] { return state_ != State::kWaiting; });
  if (state_ == State::kWaiting) {
    state_ = State::kAbandoned;
    return {StatusCode::kDeadlineExceeded,
            "the engine was not at rest within " +
                std::to_string(static_cast<int64_t>(timeout.count() * 1000)) +
                " ms: a step or a copy of KV takes longer"};
  }
  changed_.wait(lock, [this] { return state_ == State::kDone; });
  return status_;
}

void RestTask::Run(scheduler::Scheduler* scheduler) {
  {
    std::lock_guard lock(mutex_);
    if (state_ != State::kWaiting) return;
    state_ = State::kRunning;
  }
  changed_.notify_all();
  Finish(run_(scheduler));
}

void RestTask::Refuse(Status why) {
  {
    std::lock_guard lock(mutex_);
    if (state_ != State::kWaiting) return;
  }
  Finish(std::move(why));
}

void RestTask::Finish(Status status) {
  {
    std::lock_guard lock(mutex_);
    status_ = std::move(status);
    state_ = State::kDone;
  }
  changed_.notify_all();
}

bool RestTask::abandoned() const {
  std::lock_guard lock(mutex_);
  return state_ == State::kAbandoned;
}

}  // namespace pagemill::engine
