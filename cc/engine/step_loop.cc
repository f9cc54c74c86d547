// What hosts and clients call; the thread is in step_loop_thread.cc.
#include "cc/engine/step_loop.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <optional>
#include <random>
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
  PAGEMILL_RETURN_IF_ERROR(options.Validate());
  scheduler::SchedulerOptions made;
  PAGEMILL_ASSIGN_OR_RETURN(
      made.max_num_tokens,
      Lowered("max_num_scheduled_tokens", options.max_num_scheduled_tokens, limits.max_num_tokens));
  PAGEMILL_ASSIGN_OR_RETURN(made.max_num_seqs,
                            Lowered("max_num_seqs", options.max_num_seqs, limits.max_num_seqs));
  made.max_num_logits_rows = limits.max_num_logits_rows;
  made.max_model_len = limits.max_model_len;
  made.vocab_size = limits.vocab_size;
  made.long_prefill_token_threshold = options.long_prefill_token_threshold;
  made.max_partial_prefills = options.max_partial_prefills;
  made.max_long_partial_prefills = options.max_long_partial_prefills;
  made.decode_ahead = limits.placeholders && options.max_in_flight_steps > 1;
  made.pipeline_stages = limits.pipeline_stages;
  made.max_waiting_requests = options.max_waiting_requests;
  made.max_waiting_tokens = options.max_waiting_tokens;
  made.max_waiting_per_tenant = options.max_waiting_per_tenant;
  made.policy = options.scheduling_policy;
  made.tenant_weights = options.tenant_weights;
  made.max_adapters = limits.max_adapters;
  made.max_encoder_tokens = limits.max_encoder_tokens;
  made.encoder_cache_tokens = limits.encoder_cache_tokens;
  made.media_formats = limits.media_formats;
  made.chunked_media_input = options.chunked_media_input && limits.chunked_media_input;
  made.chunked_prefill = limits.chunked_prefill;
  made.pooling = limits.pooling;
  made.token_rows = limits.token_rows;
  made.routed_experts_per_token = limits.routed_experts_per_token;
  made.kv_cache.block_size = limits.block_size;
  made.kv_cache.num_blocks = limits.num_blocks;
  made.kv_cache.groups = limits.kv_groups;
  made.max_draft_tokens = limits.max_draft_tokens;
  made.kv_cache.max_steps_in_flight = options.max_in_flight_steps;
  made.kv_cache.enable_prefix_caching = options.enable_prefix_caching && limits.prefix_caching;
  made.kv_cache.eviction = options.prefix_cache_eviction;
  made.kv_cache.max_pinned_blocks = options.max_pinned_blocks;
  made.kv_cache.max_events = options.max_kv_events;
  made.kv_cache.block_age_sample = options.kv_block_age_sample;
  PAGEMILL_ASSIGN_OR_RETURN(made.kv_cache.hash_algorithm,
                            kv_cache::ParseHashAlgorithm(options.prefix_caching_hash));
  if (limits.num_blocks == 0) {  // a model that keeps no KV
    made.kv_cache.num_blocks = 1;
    made.kv_cache.groups.clear();
  }
  PAGEMILL_RETURN_IF_ERROR(made.kv_cache.Validate());
  made.max_draft_tokens =
      std::max(made.max_draft_tokens,
               std::min(limits.max_forced_tokens, made.kv_cache.MaxRejectedTokens()));
  return made;
}

// Where an engine's adapter ids begin: so far from those of all other engines that they never meet.
uint64_t RandomAdapterId() {
  std::random_device random;
  const uint64_t high = random() & 0x7FFFFFFFu;
  return (high << 32 | (random() & 0xFFFFFFFFu)) + 1;
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
  PAGEMILL_ASSIGN_OR_RETURN(const scheduler::SchedulerOptions made,
                            MakeSchedulerOptions(options, runner->limits()));
  PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<scheduler::Scheduler> scheduler,
                            scheduler::Scheduler::Create(made));
  std::unique_ptr<KvTiers> tiers;
  if (options.kv_tiers.enabled()) {
    PAGEMILL_ASSIGN_OR_RETURN(
        tiers, KvTiers::Create(options.kv_tiers, made.kv_cache, runner->pages(), clock, log));
    PAGEMILL_RETURN_IF_ERROR(scheduler->SetConnector(tiers->connector()));
  }
  const int32_t fits = scheduler->request_check().max_request_tokens();
  if (fits < made.max_model_len) {
    Log(log, LogSeverity::kWarning,
        "the KV cache holds " + std::to_string(fits) + " tokens, less than the model's " +
            std::to_string(made.max_model_len) + ": longer requests end with \"length\"");
  }
  return std::unique_ptr<StepLoop>(new StepLoop(options, made, runner, clock, std::move(log),
                                                {std::move(tiers), std::move(scheduler)}));
}

StepLoop::StepLoop(const EngineOptions& options, const scheduler::SchedulerOptions& made,
                   Runner* runner, const Clock* clock, LogSink log, Core core)
    : options_(options),
      max_unread_(static_cast<size_t>(made.max_num_seqs) +
                  static_cast<size_t>(made.max_waiting_requests)),
      first_adapter_id_(RandomAdapterId()),
      runner_(runner),
      clock_(clock),
      log_(std::move(log)),
      tiers_(std::move(core.tiers)),
      scheduler_(std::move(core.scheduler)),
      block_ages_(scheduler_->block_ages()),
      budgeter_(options.max_step_us),
      queue_(made) {
  stats_.kv_blocks_total = scheduler_->stats().kv_blocks_total;
  thread_ = std::thread([this] { Run(); });
}

StepLoop::~StepLoop() { Shutdown(); }

step::AdapterId StepLoop::NewAdapterId() {
  std::lock_guard lock(mutex_);
  return step::AdapterId(first_adapter_id_ + num_adapter_ids_++);
}

void StepLoop::CountAdapters(uint64_t loaded, uint64_t evicted) {
  std::lock_guard lock(mutex_);
  stats_.adapters_loaded += loaded;
  stats_.adapters_evicted += evicted;
}

Status StepLoop::CheckAdapter(step::AdapterId adapter) const {
  if (adapter == step::kNoAdapter) return OkStatus();
  if (adapter.value() - first_adapter_id_ < num_adapter_ids_) return OkStatus();  // wraps below it
  return InvalidArgument("adapter is " + std::to_string(adapter.value()) +
                         ", which this engine did not issue: each load of an adapter takes its id "
                         "from Engine::NewAdapterId()");
}

Status StepLoop::CheckFunctions(const step::Request& request) const {
  if (runner_->limits().request_functions) return OkStatus();
  if (request.new_token_matcher) {
    return Unimplemented("new_token_matcher is set, but this runner samples without token masks");
  }
  if (request.logits_processor) {
    return Unimplemented("logits_processor is set, but this runner calls none");
  }
  return OkStatus();
}

Status StepLoop::CheckOpen(ClientNumber client) const {
  if (closing_) return Unavailable("the engine is shut down");
  if (draining_) return Unavailable("the engine is draining: it finishes its requests and ends");
  if (asleep_) return Unavailable("the engine is asleep: it takes requests when it is awake again");
  if (clients_.num_finished_unread(client) >= max_unread_) {
    return ResourceExhausted(std::to_string(max_unread_) +
                             " finished requests have outputs that were not read")
        .WithRetryAfter(1);
  }
  return OkStatus();
}

Status StepLoop::CheckRoom(ClientNumber client) const {
  std::lock_guard lock(mutex_);
  PAGEMILL_RETURN_IF_ERROR(CheckOpen(client));
  return queue_.CheckRoom();
}

StatusOr<ClientNumber> StepLoop::OpenClient() {
  std::lock_guard lock(mutex_);
  return clients_.Open();
}

void StepLoop::CloseClient(ClientNumber client) {
  {
    std::lock_guard lock(mutex_);
    clients_.Close(client);
    for (auto it = tracked_.begin(); it != tracked_.end();) {
      const auto& [id, tracked] = *it;
      const bool is_of_client = ClientOutputs::ClientOf(id) == client;
      if (is_of_client && !tracked.finished && !closing_) AddCommand(AbortCommand{id});
      it = is_of_client && tracked.finished ? tracked_.erase(it) : std::next(it);
    }
  }
  inbox_filled_.notify_one();
}

int StepLoop::output_fd(ClientNumber client) const {
  std::lock_guard lock(mutex_);
  return clients_.fd(client);
}

Status StepLoop::Submit(ClientNumber client, step::Request request) {
  const step::RequestId own_id = request.id;
  const std::optional<step::RequestId> id = ClientOutputs::EngineId(client, own_id);
  if (!id) {
    return InvalidArgument("request id " + std::to_string(own_id.value()) +
                           " is too large; ids are below 2^48");
  }
  request.id = *id;
  Status possible = scheduler_->request_check().Check(request);
  if (possible.ok()) possible = CheckFunctions(request);
  const int64_t now = clock_->NowNanos();
  const int64_t now_us = now / 1000;
  const bool queue_timed = options_.max_queue_time_ms > 0 && !request.start_deadline_us;
  if (queue_timed) {
    request.start_deadline_us = now_us + options_.max_queue_time_ms * 1000;
  }
  {
    std::lock_guard lock(mutex_);
    Status status = possible.ok() ? CheckAdapter(request.adapter) : possible;
    if (status.ok()) status = CheckOpen(client);
    if (status.ok()) status = queue_.Check(request, now_us);
    if (status.ok() && tracked_.contains(request.id)) {
      status = FailedPrecondition("request id " + std::to_string(own_id.value()) + " is in use");
    }
    if (!status.ok()) {
      ++stats_.num_refused;
      return status;
    }
    ++stats_.num_submitted;
    if (num_unfinished_++ == 0) last_progress_ = now;
    Tracked& tracked = tracked_[request.id];
    tracked.submitted = now;
    tracked.queue_timed = queue_timed;
    clients_.Enter(client);
    tracked.ticket = queue_.Enter(request);
    AddCommand(std::move(request));
  }
  inbox_filled_.notify_one();
  return OkStatus();
}

void StepLoop::AddCommand(Command command) {
  inbox_.push_back(std::move(command));
  has_news_ = true;
}

template <typename RequestCommand>
void StepLoop::Send(ClientNumber client, step::RequestId own_id) {
  const std::optional<step::RequestId> id = ClientOutputs::EngineId(client, own_id);
  if (!id) return;
  {
    std::lock_guard lock(mutex_);
    const auto found = tracked_.find(*id);
    if (found == tracked_.end() || found->second.finished || closing_) return;
    AddCommand(RequestCommand{*id});
  }
  inbox_filled_.notify_one();
}

void StepLoop::Abort(ClientNumber client, step::RequestId id) { Send<AbortCommand>(client, id); }
void StepLoop::Release(ClientNumber client, step::RequestId id) {
  Send<ReleaseCommand>(client, id);
}

std::vector<RequestOutput> StepLoop::Take(ClientNumber client, double timeout_s) {
  std::unique_lock lock(mutex_);
  if (timeout_s > 0) {
    clients_.filled(client).wait_for(lock, WaitTime(timeout_s),
                                     [this, client] { return !clients_.empty(client) || closed_; });
  }
  UnreadOutputs taken = clients_.Take(client);
  for (step::RequestId id : taken.finished()) tracked_.erase(*ClientOutputs::EngineId(client, id));
  lock.unlock();
  return std::move(taken).Expand();
}

EngineStats StepLoop::stats() const {
  const int64_t now = clock_->NowNanos();
  std::lock_guard lock(mutex_);
  EngineStats stats = stats_;
  stats.heartbeat = heartbeat_;
  stats.num_waiting = static_cast<int64_t>(num_unfinished_) - stats.num_running;
  stats.num_waiting_tokens = queue_.num_waiting_tokens();
  stats.estimated_wait_s =
      static_cast<double>(queue_.WaitMicros(step::Request()).value_or(0)) / 1e6;
  stats.num_unread_outputs = static_cast<int64_t>(clients_.num_unread());
  stats.draining = draining_ || closing_;
  stats.asleep = asleep_;
  stats.progress_age_s = num_unfinished_ > 0 && !is_idle_ && !held_
                             ? std::max(0.0, SecondsBetween(last_progress_, now))
                             : 0;
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
    has_news_ = true;
  }
  inbox_filled_.notify_all();
  std::lock_guard join_lock(join_mutex_);
  if (thread_.joinable()) thread_.join();
}

Status StepLoop::RunOnThread(std::function<Status()> run) {
  Task task(std::move(run));
  std::future<Status> status = task.get_future();
  {
    std::lock_guard lock(mutex_);
    if (closing_) return Unavailable("the engine is shut down");
    AddCommand(std::move(task));
  }
  inbox_filled_.notify_one();
  return status.get();
}

Status StepLoop::Extend(ClientNumber client, step::RequestId own_id, scheduler::InputChunk chunk) {
  const std::optional<step::RequestId> id = ClientOutputs::EngineId(client, own_id);
  if (!id) return NotFound("request " + std::to_string(own_id.value()) + " does not exist");
  return RunOnThread([this, id = *id, chunk = std::move(chunk)]() mutable {
    return ExtendNow(id, std::move(chunk));
  });
}

void StepLoop::Pause(scheduler::PauseMode mode) {
  (void)RunBetweenSteps([this, mode](scheduler::Scheduler* scheduler) {
    scheduler->Pause(mode, &events_);
    return OkStatus();
  });
}

void StepLoop::Resume() {
  (void)RunBetweenSteps([](scheduler::Scheduler* scheduler) {
    scheduler->Resume();
    return OkStatus();
  });
}

bool StepLoop::WaitPaused(double timeout_s) {
  std::unique_lock lock(mutex_);
  return idle_.wait_for(lock, WaitTime(timeout_s), [this] { return stats_.paused && is_idle_; });
}

Status StepLoop::Record(std::shared_ptr<Timeline> timeline, const std::function<void()>& attach) {
  return RunOnThread([this, &timeline, &attach] {
    step_timeline_.Set(std::move(timeline));
    attach();
    return OkStatus();
  });
}

Status StepLoop::RunBetweenSteps(RestTask::Function run) {
  return RunOnThread([this, &run] {
    const Status status = run(scheduler_.get());
    Publish();
    return status;
  });
}

Status StepLoop::RunAtRest(RestTask::Function run, RestTask::Needs needs, double timeout_s) {
  const auto run_and_publish = [this, run = std::move(run)](scheduler::Scheduler* scheduler) {
    const Status status = run(scheduler);
    Publish();
    return status;
  };
  const auto task = std::make_shared<RestTask>(run_and_publish, needs);
  {
    std::lock_guard lock(mutex_);
    if (closing_) return Unavailable("the engine is shut down");
    AddCommand(task);
  }
  inbox_filled_.notify_one();
  return task->Wait(timeout_s);
}

void StepLoop::SetAsleep(bool asleep) {
  std::lock_guard lock(mutex_);
  asleep_ = asleep;
}

void StepLoop::SetWeightVersion(std::string version) {
  std::lock_guard lock(mutex_);
  for (auto& [id, tracked] : tracked_) {
    if (tracked.finished || tracked.num_output_tokens == 0) continue;
    auto& versions = tracked.weight_versions;
    if (versions.empty()) versions.emplace_back(0, weight_version_);
    const auto first = static_cast<int32_t>(tracked.num_output_tokens);
    if (versions.back().first == first) {
      versions.back().second = version;
    } else {
      versions.emplace_back(first, version);
    }
  }
  weight_version_ = std::move(version);
}

bool StepLoop::ResetPrefixCache(bool preempt_running) {
  bool done = false;
  (void)RunBetweenSteps([preempt_running, &done](scheduler::Scheduler* scheduler) {
    done = scheduler->ResetPrefixCache(preempt_running);
    return OkStatus();
  });
  return done;
}

}  // namespace pagemill::engine
