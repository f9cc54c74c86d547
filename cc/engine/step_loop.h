// File: cc/engine/step_loop.h
// The engine's thread and what it shares with its clients: inbox in, outputs out. engine.h is the
// face; methods of the same name are documented there.
//
// One mutex guards everything that is shared; the thread holds it to take the inbox and to publish
// what a step brought, never while it schedules or while the runner works. The scheduler and the
// plan are the thread's own.
#ifndef PAGEMILL_CC_ENGINE_STEP_LOOP_H_
#define PAGEMILL_CC_ENGINE_STEP_LOOP_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <limits>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <variant>
#include <vector>

#include "cc/base/clock.h"
#include "cc/base/log_sink.h"
#include "cc/base/status.h"
#include "cc/engine/engine_options.h"
#include "cc/engine/engine_stats.h"
#include "cc/engine/kv_tiers.h"
#include "cc/engine/output_event.h"
#include "cc/engine/output_queue.h"
#include "cc/engine/request_output.h"
#include "cc/engine/runner.h"
#include "cc/engine/step_budget.h"
#include "cc/engine/step_cost.h"
#include "cc/scheduler/admission/queue_admission.h"
#include "cc/scheduler/scheduler.h"

namespace pagemill::engine {

class StepLoop {
 public:
  // Starts the thread. `runner` and `clock` outlive the loop.
  static StatusOr<std::unique_ptr<StepLoop>> Create(const EngineOptions& options, Runner* runner,
                                                    const Clock* clock, LogSink log);
  ~StepLoop();

  Status Submit(step::Request request);
  step::AdapterId NewAdapterId();
  void Abort(step::RequestId id);
  std::vector<RequestOutput> Take(double timeout_s);  // 0: does not wait
  int output_fd() const { return output_event_.fd(); }
  EngineStats stats() const;
  void Drain();
  bool WaitIdle(double timeout_s);
  void Shutdown();
  void Release(step::RequestId id);
  Status Extend(step::RequestId id, std::vector<int32_t> token_ids, scheduler::InputPart part);
  void Pause(scheduler::PauseMode mode);
  bool WaitPaused(double timeout_s);
  void Resume();
  bool ResetPrefixCache(bool preempt_running);
  // Runs it on the engine's thread while no step is in flight, and waits for it. kUnavailable, and
  // nothing runs, after Shutdown().
  Status RunBetweenSteps(std::function<void(kv_cache::HeldPrefixes*)> run);

 private:
  struct AbortCommand {
    step::RequestId id;
  };
  struct ReleaseCommand {
    step::RequestId id;
  };
  // Something to do on the thread, between two steps.
  using Errand = std::packaged_task<Status()>;
  using Command = std::variant<step::Request, AbortCommand, ReleaseCommand, Errand>;

  // A request from Submit() until its last output has been read. Times in clock nanoseconds.
  struct Tracked {
    int64_t submitted = 0;
    int64_t started = kNever;
    int64_t first_token = kNever;
    int64_t num_output_tokens = 0;
    scheduler::QueueTicket ticket;
    bool queue_timed = false;  // its start deadline is that of EngineOptions::max_queue_time_ms
    bool finished = false;
  };
  static constexpr int64_t kNever = -1;

  struct Core {
    std::unique_ptr<KvTiers> tiers;  // null: none
    std::unique_ptr<scheduler::Scheduler> scheduler;
  };
  struct StartedStep {
    int64_t planned = 0;  // when, in clock nanoseconds
    int32_t num_tokens = 0;
    StepWork work;
  };

  StepLoop(const EngineOptions& options, const scheduler::SchedulerOptions& made, Runner* runner,
           const Clock* clock, LogSink log, Core core);

  Status CheckAdapter(step::AdapterId adapter) const;  // with mutex_
  Status CheckMatcher(const step::Request& request) const;
  Status CheckOpen(const step::Request& request, int64_t now_us) const;  // with mutex_
  // Lets the thread do it, and waits for the answer. kUnavailable after Shutdown().
  Status Ask(std::function<Status()> errand);
  void Send(step::RequestId id, Command command);  // dropped where the request is over

  // The thread.
  void Run();
  bool TakeInbox(bool wait);
  void WaitForNews(std::unique_lock<std::mutex>* lock);  // with mutex_
  void Obey(Command command);
  bool Turn();
  bool StartStep();
  void FinishStep();
  void NoteStarts();
  Status ExtendNow(step::RequestId id, std::vector<int32_t> token_ids, scheduler::InputPart part);
  bool MoveKv(int64_t now);
  void AbortAll();
  void Publish(bool at_once = false);
  void Push(int64_t now);  // events_ to outputs_, with mutex_
  // With mutex_: lets clients hear of outputs where it is time. True: outputs_filled_ is to be
  // notified without the mutex, which is what those who wake up take first of all.
  bool Tell(bool at_once, int64_t now);
  void UpdateStats(const scheduler::SchedulerStats& counted, int64_t now);  // with mutex_
  RequestOutput ToOutput(scheduler::RequestEvent event, int64_t now);       // with mutex_
  Status QueueTimeOver() const;                                             // with mutex_
  // Nothing is in flight or can run, unless a client asks for something.
  bool Rests(const scheduler::SchedulerStats& counted) const;
  void CheckIntegrity() const;

  const EngineOptions options_;
  const size_t max_unread_;
  const uint64_t first_adapter_id_;
  Runner* const runner_;
  const Clock* const clock_;
  const LogSink log_;

  // The thread's own; of the scheduler others use admission(), which is immutable.
  const std::unique_ptr<KvTiers> tiers_;  // outlives the scheduler
  const std::unique_ptr<scheduler::Scheduler> scheduler_;
  StepBudgeter budgeter_;
  scheduler::StepBudget budget_;  // of plan_
  step::StepPlan plan_;
  std::vector<scheduler::RequestEvent> events_;
  std::deque<StartedStep> started_steps_;  // those in flight
  uint64_t num_failed_steps_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable inbox_filled_;
  std::condition_variable outputs_filled_;
  std::condition_variable idle_;
  // Guarded by mutex_.
  std::vector<Command> inbox_;
  OutputQueue outputs_;
  bool untold_ = false;  // clients have not heard of what is in it
  int64_t told_ = std::numeric_limits<int64_t>::min() / 2;  // when they last did
  OutputEvent output_event_;
  std::unordered_map<step::RequestId, Tracked> tracked_;
  size_t num_unfinished_ = 0;
  uint64_t num_adapter_ids_ = 0;     // those from first_adapter_id_ on are issued
  scheduler::QueueAdmission queue_;  // of the unfinished
  int64_t last_progress_ = 0;
  bool draining_ = false;
  bool rests_ = true;     // Rests(), when the thread last looked
  bool closing_ = false;  // the thread ends as soon as it can
  bool closed_ = false;   // it has published its last output
  EngineStats stats_;

  std::mutex join_mutex_;
  std::thread thread_;
};

}  // namespace pagemill::engine

#endif  // PAGEMILL_CC_ENGINE_STEP_LOOP_H_
