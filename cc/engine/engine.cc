#include "cc/engine/engine.h"

#include <algorithm>
#include <limits>
#include <random>
#include <utility>

#include "cc/engine/kv_tiers.h"
#include "cc/engine/model_control.h"
#include "cc/engine/step_loop.h"

namespace pagemill::engine {
namespace {

StatusOr<SavedSessions> MakeSessions(const EngineOptions& options, Runner* runner, StepLoop* loop) {
  const RunnerLimits& limits = runner->limits();
  if (runner->pages() == nullptr) {
    return Unimplemented(
        "this runner's KV cannot be copied, so sessions cannot be saved (--executor native with "
        "--pipeline-parallel-size 1 can)");
  }
  if (!options.enable_prefix_caching || !limits.prefix_caching) {
    return FailedPrecondition(
        "a restored session is found by the prefix cache, which is off or of no use to this model "
        "(--enable-prefix-caching)");
  }
  if (options.kv_tiers.fingerprint == nullptr) {
    return FailedPrecondition(
        "kv_tiers.fingerprint is missing: a saved session must say which model it is of");
  }
  std::vector<size_t> page_bytes;
  for (size_t g = 0; g < limits.kv_groups.size(); ++g) {
    page_bytes.push_back(runner->pages()->page_bytes(step::GroupId(static_cast<uint16_t>(g))));
  }
  const auto layout = [kv_tiers = options.kv_tiers, block_size = limits.block_size,
                       page_bytes]() -> StatusOr<kv_transfer::SessionLayout> {
    PAGEMILL_ASSIGN_OR_RETURN(const Digest128 digest, KvDigest(kv_tiers, block_size));
    return kv_transfer::SessionLayout{
        .fingerprint = digest, .block_size = block_size, .page_bytes = page_bytes};
  };
  return SavedSessions(runner->pages(), layout, [loop](SavedSessions::Function run) {
    constexpr double kForever = std::numeric_limits<double>::infinity();  // a step at most
    const auto with_prefixes = [&run](scheduler::Scheduler* scheduler) {
      run(&scheduler->held_prefixes());
      return OkStatus();
    };
    return loop->RunAtRest(with_prefixes, RestTask::Needs::kNoStep, kForever);
  });
}

uint64_t RandomId() {
  std::random_device random;
  return uint64_t{random()} << 32 | random();
}

}  // namespace

StatusOr<std::unique_ptr<Engine>> Engine::Create(const EngineOptions& options,
                                                 std::unique_ptr<Runner> runner, const Clock* clock,
                                                 LogSink log) {
  PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine,
                            Create(options, runner.get(), clock, std::move(log)));
  engine->owned_runner_ = std::move(runner);
  return engine;
}

StatusOr<std::unique_ptr<Engine>> Engine::Create(const EngineOptions& options, Runner* runner,
                                                 const Clock* clock, LogSink log) {
  PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<StepLoop> loop,
                            StepLoop::Create(options, runner, clock, std::move(log)));
  StatusOr<SavedSessions> sessions = MakeSessions(options, runner, loop.get());
  auto control = std::make_unique<ModelControl>(runner->control(), loop.get(),
                                                options.kv_tiers.names_weights());
  return std::unique_ptr<Engine>(
      new Engine(std::move(loop), std::move(sessions), std::move(control)));
}

Engine::Engine(std::unique_ptr<StepLoop> loop, StatusOr<SavedSessions> sessions,
               std::unique_ptr<ModelControl> control)
    : loop_(std::move(loop)),
      client_(*NewClient()),  // the first of many
      sessions_(std::move(sessions)),
      control_(std::move(control)),
      kv_event_log_id_(RandomId()) {}
Engine::~Engine() = default;

StatusOr<std::unique_ptr<EngineClient>> Engine::NewClient() {
  PAGEMILL_ASSIGN_OR_RETURN(const ClientNumber number, loop_->OpenClient());
  return std::make_unique<EngineClient>(loop_.get(), number);
}
step::AdapterId Engine::NewAdapterId() { return loop_->NewAdapterId(); }
void Engine::CountAdapters(uint64_t loaded, uint64_t evicted) {
  loop_->CountAdapters(loaded, evicted);
}
EngineStats Engine::stats() const { return loop_->stats(); }
void Engine::Drain() { loop_->Drain(); }
bool Engine::WaitIdle(double timeout_s) { return loop_->WaitIdle(timeout_s); }
void Engine::Shutdown() { loop_->Shutdown(); }
void Engine::Pause(scheduler::PauseMode mode) { loop_->Pause(mode); }
bool Engine::WaitPaused(double timeout_s) { return loop_->WaitPaused(timeout_s); }
void Engine::Resume() { loop_->Resume(); }
Status Engine::RunAtRest(std::function<Status()> run, double timeout_s) {
  return loop_->RunAtRest([&run](scheduler::Scheduler*) { return run(); },
                          RestTask::Needs::kNoTransfer, timeout_s);
}
Status Engine::Record(std::shared_ptr<Timeline> timeline, const std::function<void()>& attach) {
  return loop_->Record(std::move(timeline), attach);
}
Status Engine::Sleep(KvMemory kv, double timeout_s) { return control_->Sleep(kv, timeout_s); }
Status Engine::Wake(double timeout_s) { return control_->Wake(timeout_s); }
Status Engine::UpdateWeights(const WeightSources& sources, double timeout_s, NewWeights where,
                             const std::optional<std::string>& version) {
  return control_->UpdateWeights(sources, timeout_s, where, version);
}
Status Engine::SetWeightVersion(const std::string& version, double timeout_s) {
  const auto set = [&](scheduler::Scheduler*) {
    loop_->SetWeightVersion(version);
    return OkStatus();
  };
  return loop_->RunAtRest(set, RestTask::Needs::kNoStep, timeout_s);
}
bool Engine::ResetPrefixCache(bool preempt_running) {
  return loop_->ResetPrefixCache(preempt_running);
}
Status Engine::ResetEncoderCache() {
  return loop_->RunBetweenSteps([](scheduler::Scheduler* scheduler) {
    scheduler->ResetEncoderCache();
    return OkStatus();
  });
}
StatusOr<kv_cache::PinnedPrefix> Engine::PinPrefix(const step::Request& like) {
  kv_cache::PinnedPrefix pinned;
  PAGEMILL_RETURN_IF_ERROR(loop_->RunBetweenSteps([&](scheduler::Scheduler* scheduler) -> Status {
    PAGEMILL_ASSIGN_OR_RETURN(pinned, scheduler->held_prefixes().Pin(like));
    return OkStatus();
  }));
  return pinned;
}
bool Engine::UnpinPrefix(kv_cache::PinId id) {
  const auto unpin = [id](scheduler::Scheduler* scheduler) {
    return scheduler->held_prefixes().Unpin(id) ? OkStatus() : NotFound("there is no such pin");
  };
  return loop_->RunBetweenSteps(unpin).ok();
}
StatusOr<KvEventBatch> Engine::KvEvents(uint64_t sequence, size_t max_events) {
  KvEventBatch batch;
  batch.log_id = kv_event_log_id_;
  const auto read = [&batch, sequence, max_events](scheduler::Scheduler* scheduler) -> Status {
    const kv_cache::EventLog* log = scheduler->kv_events();
    if (log == nullptr) {
      return FailedPrecondition("no KV events are made: max_kv_events is 0 (--max-kv-events)");
    }
    if (sequence == 0) return InvalidArgument("KV events are numbered from 1");
    const uint64_t first = std::max(sequence, log->first_sequence());
    PAGEMILL_ASSIGN_OR_RETURN(batch.events, log->Since(first, max_events));
    batch.next = first + batch.events.size();
    batch.dropped = first - sequence;
    return OkStatus();
  };
  PAGEMILL_RETURN_IF_ERROR(loop_->RunBetweenSteps(read));
  return batch;
}
StatusOr<int32_t> Engine::SaveSession(const std::string& path, step::Request like) {
  PAGEMILL_RETURN_IF_ERROR(sessions_.status());
  return sessions_->Save(path, std::move(like));
}
StatusOr<RestoredSession> Engine::RestoreSession(const std::string& path, step::Request like) {
  PAGEMILL_RETURN_IF_ERROR(sessions_.status());
  return sessions_->Restore(path, std::move(like));
}

}  // namespace pagemill::engine
