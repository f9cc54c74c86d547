// File: cc/engine/step_loop.h
// The engine's thread and what it shares with its clients: inbox in, outputs out. engine.h and
// engine_client.h are the interface; methods of the same name are documented there.
//
// One mutex guards everything that is shared; the thread holds it to take the inbox and to publish
// what a step brought, never while it schedules or while the runner works. The scheduler and the
// plan are the thread's own.
#ifndef PAGEMILL_CC_ENGINE_STEP_LOOP_H_
#define PAGEMILL_CC_ENGINE_STEP_LOOP_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "cc/base/clock.h"
#include "cc/base/log_sink.h"
#include "cc/base/status.h"
#include "cc/engine/client_outputs.h"
#include "cc/engine/engine_options.h"
#include "cc/engine/engine_stats.h"
#include "cc/engine/kv_tiers.h"
#include "cc/engine/request_output.h"
#include "cc/engine/rest_task.h"
#include "cc/engine/runner.h"
#include "cc/engine/step_budget.h"
#include "cc/engine/step_cost.h"
#include "cc/engine/step_timeline.h"
#include "cc/scheduler/admission/queue_admission.h"
#include "cc/scheduler/admission/request_check.h"
#include "cc/scheduler/scheduler.h"

namespace pagemill::engine {

class StepLoop {
 public:
  // Starts the thread. `runner` and `clock` outlive the loop.
  static StatusOr<std::unique_ptr<StepLoop>> Create(const EngineOptions& options, Runner* runner,
                                                    const Clock* clock, LogSink log);
  ~StepLoop();

  // Of clients. Request ids are the client's own.
  StatusOr<ClientNumber> OpenClient();
  void CloseClient(ClientNumber client);  // aborts its requests
  Status CheckRoom(ClientNumber client) const;
  Status Submit(ClientNumber client, step::Request request);
  void Abort(ClientNumber client, step::RequestId id);
  void Release(ClientNumber client, step::RequestId id);
  Status Extend(ClientNumber client, step::RequestId id, scheduler::InputChunk chunk);
  std::vector<RequestOutput> Take(ClientNumber client, double timeout_s);  // 0: does not wait
  int output_fd(ClientNumber client) const;

  step::AdapterId NewAdapterId();
  void CountAdapters(uint64_t loaded, uint64_t evicted);
  EngineStats stats() const;
  void Drain();
  bool WaitIdle(double timeout_s);
  void Shutdown();
  void Pause(scheduler::PauseMode mode);
  bool WaitPaused(double timeout_s);
  void Resume();
  bool ResetPrefixCache(bool preempt_running);
  Status Record(std::shared_ptr<Timeline> timeline, const std::function<void()>& attach);
  // Runs it on the engine's thread, where steps may be in flight, and publishes what it changed.
  // kUnavailable after Shutdown().
  Status RunBetweenSteps(RestTask::Function run);
  // Engine::RunAtRest() with the scheduler, which is the thread's own.
  Status RunAtRest(RestTask::Function run, RestTask::Needs needs, double timeout_s);
  // While asleep, the runner gets no step and new requests are refused. For tasks at rest.
  void SetAsleep(bool asleep);
  // What the weights are called from the next token on. For tasks at rest.
  void SetWeightVersion(std::string version);
  bool asleep() const { return asleep_; }

 private:
  struct AbortCommand {
    step::RequestId id;
  };
  struct ReleaseCommand {
    step::RequestId id;
  };
  // Something to do on the thread, between two steps.
  using Task = std::packaged_task<Status()>;
  // Request ids in commands, and wherever no client is named, are the engine's.
  using Command =
      std::variant<step::Request, AbortCommand, ReleaseCommand, Task, std::shared_ptr<RestTask>>;

  // A request from Submit() until its last output has been read. Times in clock nanoseconds.
  struct Tracked {
    int64_t submitted = 0;
    int64_t started = kNever;
    int64_t first_token = kNever;
    int64_t num_output_tokens = 0;
    scheduler::QueueTicket ticket;
    UnreadPlace unread;
    std::vector<std::pair<int32_t, std::string>> weight_versions;  // empty: always the same
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
  Status CheckFunctions(const step::Request& request) const;
  Status CheckOpen(ClientNumber client) const;  // with mutex_
  void AddCommand(Command command);  // with mutex_; then the caller notifies inbox_filled_
  // Runs it on the thread, and waits for its status. kUnavailable after Shutdown().
  Status RunOnThread(std::function<Status()> run);
  // Sends `Command{id}` to the thread; does nothing if the request is over.
  template <typename RequestCommand>
  void Send(ClientNumber client, step::RequestId id);

  // The thread.
  void Run();
  bool TakeInbox(bool wait);
  void WaitForNews(std::unique_lock<std::mutex>* lock);  // with mutex_
  void Dispatch(Command command);
  bool RunOnce();
  bool StartStep();
  Status RunPlan();
  StatusOr<step::StepResult> CollectResult();
  bool RunRestTasks();
  // False while a task wants the runner at rest, or the runner is asleep.
  bool MayStartSteps() const { return rest_tasks_.empty() && !asleep_; }
  void FinishStep();
  void NoteStarts();
  Status ExtendNow(step::RequestId id, scheduler::InputChunk chunk);
  bool MoveKv();
  void SetBlockTime();
  void AbortAll();
  void Publish(bool at_once = false);
  void Push(int64_t now);  // events_ to clients_, with mutex_
  // Signals ready outputs to the clients whose notify interval has elapsed, to all if `at_once`.
  // Unlocks: threads that wake up take the mutex first.
  void NotifyClients(bool at_once, int64_t now, std::unique_lock<std::mutex> lock);
  void UpdateStats(const scheduler::SchedulerStats& counted, int64_t now);  // with mutex_
  RequestOutput ToOutput(scheduler::RequestEvent&& event, Tracked* tracked, int64_t now);
  void EndOutput(scheduler::RequestEvent&& event, Tracked* tracked, int64_t now,
                 RequestOutput* output);  // both with mutex_
  Status QueueTimeOver() const;           // with mutex_
  // True if nothing is in flight, and nothing can run until a client sends a command.
  bool IsIdle(const scheduler::SchedulerStats& counted) const;
  void CheckIntegrity() const;

  const EngineOptions options_;
  const size_t max_unread_;
  const uint64_t first_adapter_id_;
  Runner* const runner_;
  const Clock* const clock_;
  const LogSink log_;

  // The thread's own; of the scheduler others use request_check(), which is immutable.
  const std::unique_ptr<KvTiers> tiers_;  // outlives the scheduler
  const std::unique_ptr<scheduler::Scheduler> scheduler_;
  kv_cache::BlockAges* const block_ages_;  // of the scheduler; null: none
  StepBudgeter budgeter_;
  scheduler::StepBudget budget_;  // of the newest step
  step::StepPlan plan_;
  std::vector<scheduler::RequestEvent> events_;
  std::deque<StartedStep> started_steps_;  // those in flight
  uint64_t num_failed_steps_ = 0;
  std::deque<std::shared_ptr<RestTask>> rest_tasks_;  // no step starts until they have run
  std::vector<std::condition_variable*> to_wake_;     // of NotifyClients()
  StepTimeline step_timeline_;

  // Between two steps the thread takes the mutex only for news: readers of outputs, which it has
  // just woken, take it then, and to wait for one of them costs more than the step's own work.
  std::atomic<bool> has_news_ = false;  // inbox_ is not empty, or closing_; set with mutex_
  std::atomic<uint64_t> heartbeat_ = 0;  // turns of the loop

  mutable std::mutex mutex_;
  std::condition_variable inbox_filled_;
  std::condition_variable idle_;
  // Guarded by mutex_.
  std::vector<Command> inbox_;
  ClientOutputs clients_;
  std::unordered_map<step::RequestId, Tracked> tracked_;
  size_t num_unfinished_ = 0;
  uint64_t num_adapter_ids_ = 0;     // those from first_adapter_id_ on are issued
  scheduler::QueueAdmission queue_;  // of the unfinished; the scheduler keeps no account of them
  int64_t last_progress_ = 0;
  bool draining_ = false;
  bool is_idle_ = true;   // IsIdle(), when the thread last looked
  bool held_ = false;     // steps may not start, and none is in flight; the same
  std::string weight_version_;
  bool asleep_ = false;   // changed by the thread only, which reads it without the mutex
  bool closing_ = false;  // the thread ends as soon as it can
  bool closed_ = false;   // it has published its last output
  EngineStats stats_;

  std::mutex join_mutex_;
  std::thread thread_;
};

}  // namespace pagemill::engine

#endif  // PAGEMILL_CC_ENGINE_STEP_LOOP_H_
