// File: cc/engine/rest_task.h
// Work for the engine's thread that needs a runner at rest, and the client that waits for it.
//
//   auto task = std::make_shared<RestTask>(run, RestTask::Needs::kNoTransfer);   // client
//   ... the thread gets it ...
//   Status status = task->Wait(/*timeout_s=*/5);                                 // client
//
//   task->Run(&scheduler);                                                       // thread
//
// A task runs at most once, and never after Wait() has returned, so that it may refer to what the
// client owns.
//
// Thread safety: all methods. Run() and Refuse() are the thread's, Wait() the client's.
#ifndef PAGEMILL_CC_ENGINE_REST_TASK_H_
#define PAGEMILL_CC_ENGINE_REST_TASK_H_

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>

#include "cc/base/status.h"
#include "cc/scheduler/scheduler.h"

namespace pagemill::engine {

class RestTask {
 public:
  using Function = std::function<Status(scheduler::Scheduler*)>;
  // What must be over before it runs, besides all steps.
  enum class Needs : uint8_t { kNoStep, kNoTransfer };

  RestTask(Function run, Needs needs) : needs(needs), run_(std::move(run)) {}

  const Needs needs;

  // What the function returned. kDeadlineExceeded: it had not begun after `timeout_s` seconds, and
  // never will.
  Status Wait(double timeout_s);

  // Nothing happens if the client does not wait any longer.
  void Run(scheduler::Scheduler* scheduler);
  void Refuse(Status why);
  bool abandoned() const;

 private:
  enum class State : uint8_t { kWaiting, kRunning, kDone, kAbandoned };
  void Finish(Status status);

  const Function run_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  State state_ = State::kWaiting;
  Status status_;
};

}  // namespace pagemill::engine

#endif  // PAGEMILL_CC_ENGINE_REST_TASK_H_
