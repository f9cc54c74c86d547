// What clients call; the thread is in step_loop_thread.cc.
#include "cc/engine/step_loop.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

namespace pagemill::engine {
namespace {

// `chosen` where it was chosen, but at most the runner's `limit`.
StatusOr<int32_t> Lowered(const char* field, int32_t chosen, int32_t limit) {
  if (chosen <= limit) return chosen == 0 ? limit : chosen;
  return InvalidArgument(std::string(field) + " is " + std::to_string(chosen) +
                         ", it must be at most the runner's " + std::to_string(limit));
}

StatusOr<scheduler::SchedulerOptions> MakeSchedulerOptions(const EngineOptions& options,
                                                           const RunnerLimits& limits) {
  PM_RETURN_IF_ERROR(options.Validate());
  scheduler::SchedulerOptions made;
  PM_ASSIGN_OR_RETURN(
      made.max_num_tokens,
      Lowered("max_num_scheduled_tokens", options.max_num_scheduled_tokens, limits.max_num_tokens));
  PM_ASSIGN_OR_RETURN(made.max_num_seqs,
                      Lowered("max_num_seqs", options.max_num_seqs, limits.max_num_seqs));
  made.max_num_logits_rows = limits.max_num_logits_rows;
  made.max_model_len = limits.max_model_len;
  made.vocab_size = limits.vocab_size;
  made.long_prefill_token_threshold = options.long_prefill_token_threshold;
  if (options.max_draft_tokens > limits.max_draft_tokens) {
    return InvalidArgument("max_draft_tokens is " + std::to_string(options.max_draft_tokens) +
                           ", but the runner verifies at most " +
                           std::to_string(limits.max_draft_tokens) + " drafts of a request");
  }
  made.drafts = {options.max_draft_tokens, options.max_step_draft_tokens};
  made.decode_ahead =
      limits.placeholders && options.max_in_flight_steps > 1 && options.max_draft_tokens == 0;
  made.max_waiting_requests = options.max_waiting_requests;
  made.policy = options.scheduling_policy;
  made.chunked_prefill = limits.chunked_prefill;
  made.pooling = limits.pooling;
  made.kv_cache.block_size = limits.block_size;
  made.kv_cache.num_blocks = limits.num_blocks;
  made.kv_cache.enable_prefix_caching = options.enable_prefix_caching && limits.prefix_caching;
  PM_ASSIGN_OR_RETURN(made.kv_cache.hash_algorithm,
                      kv_cache::ParseHashAlgorithm(options.prefix_caching_hash));
  if (limits.num_blocks == 0) {  // a model that keeps no KV
    made.kv_cache.num_blocks = 1;
    made.kv_cache.groups.clear();
  }
  return made;
}

// Seconds as a wait that neither overflows nor is negative.
std::chrono::nanoseconds WaitTime(double seconds) {
  constexpr double kLongest = 1e8;
  const double bounded = seconds > 0 ? std::min(seconds, kLongest) : 0;
  return std::chrono::nanoseconds(static_cast<int64_t>(bounded * 1e9));
}

}  // namespace

StatusOr<std::unique_ptr<StepLoop>> StepLoop::Create(const EngineOptions& options, Runner* runner,
                                                     const Clock* clock, LogSink log) {
  PM_ASSIGN_OR_RETURN(const scheduler::SchedulerOptions made,
                      MakeSchedulerOptions(options, runner->limits()));
  PM_ASSIGN_OR_RETURN(std::unique_ptr<scheduler::Scheduler> scheduler,
                      scheduler::Scheduler::Create(made));
  EngineOptions settled = options;
  settled.max_num_seqs = made.max_num_seqs;
  std::unique_ptr<KvTiers> tiers;
  if (options.kv_tiers.enabled()) {
    PM_ASSIGN_OR_RETURN(tiers,
                        KvTiers::Create(options.kv_tiers, made.kv_cache, runner->pages(), log));
    PM_RETURN_IF_ERROR(scheduler->SetConnector(tiers->connector()));
  }
  const int32_t fits = scheduler->admission().max_request_tokens();
  if (fits < made.max_model_len) {
    Log(log, LogSeverity::kWarning,
        "the KV cache holds " + std::to_string(fits) + " tokens, less than the model's " +
            std::to_string(made.max_model_len) + ": longer requests end with \"length\"");
  }
  return std::unique_ptr<StepLoop>(new StepLoop(settled, runner, clock, std::move(log),
                                                {std::move(tiers), std::move(scheduler)}));
}

StepLoop::StepLoop(const EngineOptions& options, Runner* runner, const Clock* clock, LogSink log,
                   Core core)
    : options_(options),
      max_unfinished_(static_cast<size_t>(options.max_num_seqs) +
                      static_cast<size_t>(options.max_waiting_requests)),
      runner_(runner),
      clock_(clock),
      log_(std::move(log)),
      tiers_(std::move(core.tiers)),
      scheduler_(std::move(core.scheduler)) {
  stats_.kv_blocks_total = scheduler_->stats().kv_blocks_total;
  thread_ = std::thread([this] { Run(); });
}

StepLoop::~StepLoop() { Shutdown(); }

Status StepLoop::CheckOpen() const {
  if (closing_) return Unavailable("the engine is shut down");
  if (draining_) return Unavailable("the engine is draining: it finishes its requests and ends");
  if (num_unfinished_ >= max_unfinished_) {
    return ResourceExhausted(std::to_string(options_.max_waiting_requests) +
                             " requests are waiting already (--max-num-queued-reqs); retry later");
  }
  if (tracked_.size() - num_unfinished_ >= max_unfinished_) {
    return ResourceExhausted(std::to_string(max_unfinished_) +
                             " finished requests have outputs that were not read");
  }
  return OkStatus();
}

Status StepLoop::Submit(step::Request request) {
  const Status possible = scheduler_->admission().Check(request);
  const int64_t now = clock_->NowNanos();
  {
    std::lock_guard lock(mutex_);
    Status status = possible.ok() ? CheckOpen() : possible;
    if (status.ok() && tracked_.contains(request.id)) {
      status =
          FailedPrecondition("request id " + std::to_string(request.id.value()) + " is in use");
    }
    if (!status.ok()) {
      ++stats_.num_refused;
      return status;
    }
    ++stats_.num_submitted;
    if (num_unfinished_++ == 0) last_progress_ = now;
    tracked_[request.id].submitted = now;
    inbox_.emplace_back(std::move(request));
  }
  inbox_filled_.notify_one();
  return OkStatus();
}

void StepLoop::Send(step::RequestId id, Command command) {
  {
    std::lock_guard lock(mutex_);
    const auto found = tracked_.find(id);
    if (found == tracked_.end() || found->second.finished || closing_) return;
    inbox_.push_back(std::move(command));
  }
  inbox_filled_.notify_one();
}

void StepLoop::Abort(step::RequestId id) { Send(id, AbortCommand{id}); }
void StepLoop::Release(step::RequestId id) { Send(id, ReleaseCommand{id}); }

std::vector<RequestOutput> StepLoop::Take(double timeout_s) {
  std::unique_lock lock(mutex_);
  if (timeout_s > 0) {
    outputs_filled_.wait_for(lock, WaitTime(timeout_s),
                             [this] { return !outputs_.empty() || closed_; });
  }
  if (outputs_.empty()) return {};
  output_event_.Clear();
  std::vector<RequestOutput> taken = outputs_.TakeAll();
  for (const RequestOutput& output : taken) {
    if (output.finished()) tracked_.erase(output.request_id);
  }
  return taken;
}

EngineStats StepLoop::stats() const {
  const int64_t now = clock_->NowNanos();
  std::lock_guard lock(mutex_);
  EngineStats stats = stats_;
  stats.num_waiting = static_cast<int64_t>(num_unfinished_) - stats.num_running;
  stats.num_unread_outputs = static_cast<int64_t>(outputs_.size());
  stats.draining = draining_ || closing_;
  stats.progress_age_s =
      num_unfinished_ > 0 && !rests_ ? std::max(0.0, SecondsBetween(last_progress_, now)) : 0;
  return stats;
}

void StepLoop::Drain() {
  std::lock_guard lock(mutex_);
  draining_ = true;
}

bool StepLoop::WaitIdle(double timeout_s) {
  std::unique_lock lock(mutex_);
  return idle_.wait_for(lock, WaitTime(timeout_s), [this] { return num_unfinished_ == 0; });
}

void StepLoop::Shutdown() {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
  }
  inbox_filled_.notify_all();
  std::lock_guard join_lock(join_mutex_);
  if (thread_.joinable()) thread_.join();
}

Status StepLoop::Ask(std::function<Status()> errand) {
  Errand task(std::move(errand));
  std::future<Status> answer = task.get_future();
  {
    std::lock_guard lock(mutex_);
    if (closing_) return Unavailable("the engine is shut down");
    inbox_.emplace_back(std::move(task));
  }
  inbox_filled_.notify_one();
  return answer.get();
}

Status StepLoop::Extend(step::RequestId id, std::vector<int32_t> token_ids,
                        scheduler::InputPart part) {
  return Ask([this, id, token_ids = std::move(token_ids), part]() mutable {
    return ExtendNow(id, std::move(token_ids), part);
  });
}

// What the following do is published before they return.
void StepLoop::Pause(scheduler::PauseMode mode) {
  (void)Ask([this, mode] {
    scheduler_->Pause(mode, &events_);
    Publish();
    return OkStatus();
  });
}

void StepLoop::Resume() {
  (void)Ask([this] {
    scheduler_->Resume();
    Publish();
    return OkStatus();
  });
}

bool StepLoop::WaitPaused(double timeout_s) {
  std::unique_lock lock(mutex_);
  return idle_.wait_for(lock, WaitTime(timeout_s), [this] { return stats_.paused && rests_; });
}

Status StepLoop::RunBetweenSteps(std::function<void(kv_cache::HeldPrefixes*)> run) {
  return Ask([this, run = std::move(run)] {
    while (scheduler_->num_steps_in_flight() > 0) FinishStep();
    run(&scheduler_->held_prefixes());
    Publish();
    return OkStatus();
  });
}

bool StepLoop::ResetPrefixCache(bool preempt_running) {
  bool done = false;
  (void)Ask([this, preempt_running, &done] {
    done = scheduler_->ResetPrefixCache(preempt_running);
    Publish();
    return OkStatus();
  });
  return done;
}

}  // namespace pagemill::engine
