// The engine's thread: take the inbox, start steps, finish the oldest, publish.
#include <algorithm>
#include <chrono>
#include <iterator>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "cc/engine/step_loop.h"
#include "cc/kv_cache/block_ages.h"

namespace pagemill::engine {
namespace {

// True if clients are notified of the event at once: it is anything but the next tokens of a
// request that has some, or what comes with them.
bool IsUrgent(const scheduler::RequestEvent& event) {
  return event.first_tokens || event.turn_finished || event.finish_reason ||
         event.new_token_ids.empty();
}

bool IsOnlyTokens(const scheduler::RequestEvent& event) {
  return !IsUrgent(event) && event.logprobs.empty() && !event.prompt_logprobs && !event.pooled;
}

}  // namespace

void StepLoop::Run() {
  bool busy = false;
  while (TakeInbox(/*wait=*/!busy)) busy = RunOnce();
  for (const std::shared_ptr<RestTask>& task : rest_tasks_) {
    task->Refuse(Unavailable("the engine is shut down"));
  }
  AbortAll();
  if (tiers_ != nullptr) tiers_->Close(scheduler_.get());
  std::lock_guard lock(mutex_);
  closed_ = true;
  clients_.NotifyAll();
}

// Runs the commands that came in; `wait`: waits for one. False once the engine closes.
bool StepLoop::TakeInbox(bool wait) {
  std::vector<Command> commands;
  bool closing = false;
  ++heartbeat_;
  if (wait || has_news_) {
    std::unique_lock lock(mutex_);
    if (wait) WaitForNews(&lock);
    commands.swap(inbox_);
    closing = closing_;
    has_news_ = closing;
  }
  SetBlockTime();
  for (Command& command : commands) Dispatch(std::move(command));
  scheduler_->Expire(clock_->NowNanos() / 1000, &events_);
  if (!events_.empty()) Publish();
  return !closing;
}

// For a command, the next deadline, or a copy. A copy that ends wakes a request that waits for it
// at once; a command has to wait for a millisecond then. Copies that no request waits for are
// checked now and then.
void StepLoop::WaitForNews(std::unique_lock<std::mutex>* lock) {
  constexpr int64_t kLongest = 1'000'000'000;  // microseconds, as those below
  constexpr int64_t kPause = 1'000, kIdlePause = 20'000;
  const auto has_news = [this] { return !inbox_.empty() || closing_; };
  const std::optional<int64_t> deadline = scheduler_->next_deadline_us();
  int64_t left = kLongest;
  if (deadline) left = std::min(left, *deadline - clock_->NowNanos() / 1000);
  if (left <= 0 || has_news()) return;
  if (scheduler_->num_transfers_in_flight() == 0) {
    if (deadline) {
      inbox_filled_.wait_for(*lock, std::chrono::microseconds(left), has_news);
    } else {
      inbox_filled_.wait(*lock, has_news);
    }
  } else if (!scheduler_->HasWork()) {
    inbox_filled_.wait_for(*lock, std::chrono::microseconds(std::min(left, kIdlePause)), has_news);
  } else {
    lock->unlock();
    tiers_->Wait(std::min(left, kPause));
    lock->lock();
  }
}

void StepLoop::Dispatch(Command command) {
  if (auto* task = std::get_if<Task>(&command)) {
    (*task)();
  } else if (auto* rest_task = std::get_if<std::shared_ptr<RestTask>>(&command)) {
    rest_tasks_.push_back(std::move(*rest_task));
  } else if (auto* release = std::get_if<ReleaseCommand>(&command)) {
    scheduler_->Release(release->id);
  } else if (auto* abort = std::get_if<AbortCommand>(&command)) {
    scheduler_->Abort(abort->id, &events_);
  } else {
    auto& request = std::get<step::Request>(command);
    const step::RequestId id = request.id;
    const Status status =
        scheduler_->Add(std::move(request), scheduler::QueueAccount::kHost);  // queue_ has it
    if (status.ok()) return;
    // Submit() checks the same, so this is not expected; if it happens, the request ends with an
    // error.
    scheduler::RequestEvent& event = events_.emplace_back();
    event.id = id;
    event.finish_reason = step::FinishReason::kError;
    event.error = status;
  }
}

Status StepLoop::ExtendNow(step::RequestId id, scheduler::InputChunk chunk) {
  {
    std::lock_guard lock(mutex_);
    const auto tracked = tracked_.find(id);
    if (tracked != tracked_.end() && clients_.HasTurnEnd(id, tracked->second.unread)) {
      return FailedPrecondition("the end of the last turn of request " +
                                std::to_string(ClientOutputs::OwnId(id).value()) +
                                " has not been read");
    }
  }
  return scheduler_->Extend(id, std::move(chunk));
}

// Starts what may start and finishes one step. False if there was nothing to do.
bool StepLoop::RunOnce() {
  const auto most = static_cast<size_t>(options_.max_in_flight_steps);
  if (!MayStartSteps()) MoveKv();  // as StartStep() does
  while (MayStartSteps() && scheduler_->num_steps_in_flight() < most && StartStep()) {
  }
  if (scheduler_->num_steps_in_flight() == 0) {
    Publish(/*at_once=*/true);
    return RunRestTasks();
  }
  FinishStep();
  return true;
}

// Runs those that need not wait any longer, when no step is in flight. False if there are none.
bool StepLoop::RunRestTasks() {
  bool any = false;
  for (; !rest_tasks_.empty(); rest_tasks_.pop_front()) {
    RestTask& task = *rest_tasks_.front();
    const bool copies = scheduler_->num_transfers_in_flight() > 0;
    if (copies && task.needs == RestTask::Needs::kNoTransfer && !task.abandoned()) break;
    task.Run(scheduler_.get());
    any = true;
  }
  return any;
}

// False if nothing can run now.
bool StepLoop::StartStep() {
  const int64_t start = clock_->NowNanos();
  SetBlockTime();
  MoveKv();
  // A transfer that ended meanwhile may be what a request waited for: then it is planned at once,
  // since nothing else may ever end the wait for news.
  scheduler::StepBudget budget;
  do {
    const auto scope = step_timeline_.Measure(StepPart::kPlan);
    budget = budgeter_.Next(scheduler_->num_decoding());
    scheduler_->Schedule(&plan_, budget);
  } while (MoveKv() && plan_.empty());
  if (plan_.empty()) return false;
  budget_ = budget;
  step_timeline_.CountStep();
  started_steps_.push_back({start, plan_.total_num_tokens, StepWork::Of(plan_)});
  NoteStarts();
  const Status status = RunPlan();
  if (status.ok()) return true;
  // This step is the newest; the results before it come first.
  while (scheduler_->num_steps_in_flight() > 1) FinishStep();
  Log(log_, LogSeverity::kWarning, "the runner refused a step: " + status.ToString());
  PAGEMILL_CHECK(scheduler_->FailStep(status, &events_).ok());
  ++num_failed_steps_;
  Publish();
  return true;
}

Status StepLoop::RunPlan() {
  {
    const auto scope = step_timeline_.Measure(StepPart::kExecute, &plan_);
    PAGEMILL_RETURN_IF_ERROR(runner_->Execute(plan_));
  }
  const auto scope = step_timeline_.Measure(StepPart::kSample, &plan_);
  return runner_->Sample();
}

StatusOr<step::StepResult> StepLoop::CollectResult() {
  const auto scope = step_timeline_.Measure(StepPart::kCollect);
  return runner_->Collect();
}

// What the last steps planned starts before the runner is busy with the next one.
// True if transfers have ended.
bool StepLoop::MoveKv() { return tiers_ != nullptr && tiers_->Move(scheduler_.get()); }

// What follows uses and evicts KV blocks at this time.
void StepLoop::SetBlockTime() {
  if (block_ages_ != nullptr) block_ages_->SetTime(clock_->NowNanos());
}

void StepLoop::FinishStep() {
  StatusOr<step::StepResult> result = CollectResult();
  SetBlockTime();
  if (result.ok()) {
    const auto scope = step_timeline_.Measure(StepPart::kUpdate);
    PAGEMILL_CHECK(scheduler_->Update(std::move(*result), &events_).ok());
  } else {
    Log(log_, LogSeverity::kWarning, "the runner lost a step: " + result.status().ToString());
    PAGEMILL_CHECK(scheduler_->FailStep(result.status(), &events_).ok());
    ++num_failed_steps_;
  }
  if (options_.check_integrity) CheckIntegrity();
  Publish();
}

void StepLoop::CheckIntegrity() const {
  const Status status = scheduler_->CheckIntegrity();
  if (!status.ok()) CheckFailed(__FILE__, __LINE__, status.ToString());
}

void StepLoop::NoteStarts() {
  // A step with prompts may take long: what there is does not wait for its end.
  const bool has_prompts = static_cast<size_t>(plan_.total_num_tokens) > plan_.scheduled.size();
  const bool has_starts =
      std::any_of(plan_.scheduled.begin(), plan_.scheduled.end(),
                  [](const step::ScheduledRequest& entry) { return entry.start != nullptr; });
  // Only this thread changes whether it is idle or held. Steps that only decode change nothing that
  // the end of a step does not publish.
  if (!has_prompts && !has_starts && !is_idle_ && !held_) return;
  const int64_t now = started_steps_.back().planned;
  const scheduler::SchedulerStats counted = scheduler_->stats();
  std::unique_lock lock(mutex_);
  UpdateStats(counted, now);
  for (const step::ScheduledRequest& entry : plan_.scheduled) {
    if (entry.start == nullptr) continue;
    Tracked& tracked = tracked_[entry.start->id];
    if (tracked.started != kNever) continue;
    tracked.started = now;
    queue_.Start(&tracked.ticket);
  }
  if (has_prompts) NotifyClients(/*at_once=*/true, now, std::move(lock));
}

// On the way out: every request ends, and the runner is left without steps.
void StepLoop::AbortAll() {
  std::vector<step::RequestId> unfinished;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [id, tracked] : tracked_) {
      if (!tracked.finished) unfinished.push_back(id);
    }
  }
  std::sort(unfinished.begin(), unfinished.end());
  for (step::RequestId id : unfinished) scheduler_->Abort(id, &events_);
  Publish();
  while (scheduler_->num_steps_in_flight() > 0) FinishStep();
}

void StepLoop::Push(int64_t now) {
  for (scheduler::RequestEvent& event : events_) {
    const step::RequestId id = event.id;
    Tracked& tracked = tracked_[id];
    tracked.num_output_tokens += static_cast<int64_t>(event.new_token_ids.size());
    if (IsOnlyTokens(event)) {
      clients_.Push({.request_id = id,
                     .token_ids = event.new_token_ids,
                     .num_cached_tokens = event.num_cached_tokens},
                    &tracked.unread);
      continue;
    }
    const bool at_once = IsUrgent(event);
    const bool finished = event.finish_reason.has_value();
    const bool kept =
        clients_.Push(ToOutput(std::move(event), &tracked, now), at_once, &tracked.unread);
    if (finished && !kept) tracked_.erase(id);  // its client is closed
  }
  events_.clear();
}

void StepLoop::NotifyClients(bool at_once, int64_t now, std::unique_lock<std::mutex> lock) {
  to_wake_.clear();
  clients_.Signal(at_once, now, options_.output_interval_us * 1000, &to_wake_);
  lock.unlock();
  for (std::condition_variable* filled : to_wake_) filled->notify_all();
}

// Hands events_ to the clients, together with the numbers that go with them.
void StepLoop::Publish(bool at_once) {
  const auto scope = step_timeline_.Measure(StepPart::kPublish);
  const int64_t now = clock_->NowNanos();
  const scheduler::SchedulerStats counted = scheduler_->stats();
  const kv_cache::KvConnectorStats moved =
      tiers_ != nullptr ? tiers_->connector()->stats() : kv_cache::KvConnectorStats();
  const size_t in_flight = scheduler_->num_steps_in_flight();
  std::unique_lock lock(mutex_);
  Push(now);

  // Nothing is in flight any more that was started before: those steps are done.
  while (started_steps_.size() > in_flight) {
    const StartedStep& step = started_steps_.front();
    stats_.last_step_s = SecondsBetween(step.planned, now);
    // Steps overlap where several are in flight: the time since the one before is this one's own.
    const int64_t own_ns = now - std::max(step.planned, last_progress_);
    queue_.estimator().ObserveStep(step.num_tokens, own_ns / 1000);
    budgeter_.Observe(step.work, own_ns / 1000);
    started_steps_.pop_front();
    ++stats_.num_steps;
    last_progress_ = now;
  }
  UpdateStats(counted, now);
  static_cast<kv_cache::KvConnectorStats&>(stats_) = moved;
  if (num_unfinished_ == 0 || is_idle_) idle_.notify_all();
  NotifyClients(at_once, now, std::move(lock));
}

bool StepLoop::IsIdle(const scheduler::SchedulerStats& counted) const {
  if (scheduler_->num_steps_in_flight() > 0) return false;
  if (scheduler_->pause_mode() == scheduler::PauseMode::kKeep) return true;
  const auto parked = [&counted](scheduler::ParkReason reason) {
    return counted.num_parked[static_cast<size_t>(reason)];
  };
  // A request that started goes on by itself unless it waits for input, also one that was preempted
  // and then parked, for an adapter slot for example.
  return counted.num_started == parked(scheduler::ParkReason::kAwaitingInput) &&
         counted.num_waiting == 0 && parked(scheduler::ParkReason::kKvLookup) == 0 &&
         parked(scheduler::ParkReason::kKvLoad) == 0;
}

void StepLoop::UpdateStats(const scheduler::SchedulerStats& counted, int64_t now) {
  const bool was_quiet = is_idle_ || held_;
  is_idle_ = IsIdle(counted);
  held_ = !MayStartSteps() && scheduler_->num_steps_in_flight() == 0;
  if (was_quiet && !is_idle_ && !held_) last_progress_ = now;
  stats_.paused = scheduler_->pause_mode().has_value();
  static_cast<scheduler::SchedulerStats&>(stats_) = counted;
  if (block_ages_ != nullptr) static_cast<kv_cache::BlockAgeStats&>(stats_) = block_ages_->stats();
  const int32_t limit = budget_.prefill_tokens;
  stats_.step_budget_tokens = limit == scheduler::StepBudget::kNoLimit ? 0 : limit;
  stats_.num_failed_steps = num_failed_steps_;
}

// Not the client's own deadline but the engine's: the same refusal as of one that would wait so
// long.
Status StepLoop::QueueTimeOver() const {
  const int64_t wait_us = queue_.WaitMicros(step::Request()).value_or(0);
  const auto retry_s = static_cast<int32_t>(std::clamp<int64_t>(wait_us / 1'000'000, 1, 600));
  return ResourceExhausted("the request waited for " + std::to_string(options_.max_queue_time_ms) +
                           " ms without a start (--max-queue-time); retry in about " +
                           std::to_string(retry_s) + " s")
      .WithRetryAfter(retry_s);
}

RequestOutput StepLoop::ToOutput(scheduler::RequestEvent&& event, Tracked* tracked, int64_t now) {
  if (event.first_tokens) tracked->first_token = now;
  RequestOutput output;
  output.request_id = event.id;
  output.new_token_ids = event.new_token_ids.ToVector();
  if (!event.logprobs.empty()) output.logprobs = std::move(event.logprobs);
  output.prompt_logprobs = std::move(event.prompt_logprobs);
  output.pooled = std::move(event.pooled);
  output.num_cached_tokens = event.num_cached_tokens;
  output.turn_finished = event.turn_finished;
  output.stop_token_id = event.stop_token_id;
  if (event.finish_reason) EndOutput(std::move(event), tracked, now, &output);
  return output;
}

void StepLoop::EndOutput(scheduler::RequestEvent&& event, Tracked* tracked, int64_t now,
                         RequestOutput* output) {
  output->finish_reason = event.finish_reason;
  output->error = std::move(event.error);
  output->kv_transfer_params = std::move(event.kv_transfer_params);
  output->routed_experts = std::move(event.routed_experts);
  output->num_evicted_tokens = event.num_evicted_tokens;
  output->num_draft_steps = event.num_draft_steps;
  output->num_draft_tokens = event.num_draft_tokens;
  output->num_accepted_draft_tokens = event.num_accepted_draft_tokens;
  if (tracked->queue_timed && tracked->started == kNever &&
      output->error.code() == StatusCode::kDeadlineExceeded) {
    output->error = QueueTimeOver();
  }
  const int64_t started = tracked->started == kNever ? now : tracked->started;
  const int64_t first_token = tracked->first_token == kNever ? now : tracked->first_token;
  output->queued_s = SecondsBetween(tracked->submitted, started);
  output->prefill_s = SecondsBetween(started, first_token);
  output->decode_s = SecondsBetween(first_token, now);
  output->weight_versions = std::move(tracked->weight_versions);
  if (output->weight_versions.empty() && !weight_version_.empty()) {
    output->weight_versions.emplace_back(0, weight_version_);
  }
  tracked->finished = true;
  --num_unfinished_;
  queue_.Leave(tracked->ticket);
  if (tracked->num_output_tokens > 0) {
    queue_.estimator().ObserveOutput(tracked->num_output_tokens);
  }
  uint64_t* const counters[] = {&stats_.finished_stop, &stats_.finished_length,
                                &stats_.finished_abort, &stats_.finished_error,
                                &stats_.finished_repetition};
  static_assert(std::size(counters) == step::kNumFinishReasons);
  ++*counters[static_cast<size_t>(*event.finish_reason)];
}

}  // namespace pagemill::engine
