// File: cc/engine/engine.h
// The engine: scheduler, KV cache and loop around a Runner, on a thread of its own. Hosts submit
// requests and read outputs; both may happen on any threads.
//
//   SteadyClock clock;
//   PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine,
//                       Engine::Create(EngineOptions{}, std::move(runner), &clock, log_sink));
//   Request request;
//   request.id = RequestId(1);
//   request.prompt_token_ids = {1, 2, 3};
//   PAGEMILL_RETURN_IF_ERROR(engine->Submit(std::move(request)));
//   for (bool done = false; !done;) {
//     for (const RequestOutput& out : engine->Wait(/*timeout_s=*/1.0)) done = out.finished();
//   }
//
// Every accepted request ends with exactly one output that has a finish_reason, whatever happens:
// stop, length, abort, a failure of the runner, shutdown. A runner's failure ends the requests of
// that step only.
//
// Bounds: at most max_num_seqs + max_waiting_requests requests are unfinished, and of each client
// at most as many again finished but unread; more are refused. Unread outputs of one request are
// merged.
//
// A host with several readers of outputs opens a client for each (NewClient()); what the engine
// itself offers of submitting and reading is its own client's.
//
// Times in requests (deadlines) are microseconds of the engine's clock. A request whose deadline
// passes ends with an error, kDeadlineExceeded, between two steps.
//
// Thread safety: all methods are thread-safe, but each output is handed out once, so one consumer
// is usual. Submit(), Abort() and Release() never wait for a step; Poll() never waits at all.
// Extend(), Pause(), Resume() and resets of caches take effect between two steps and wait for
// that; RunAtRest() and what is built on it (sessions, Sleep(), Wake(), UpdateWeights()) wait until
// no step is in flight.
#ifndef PAGEMILL_CC_ENGINE_ENGINE_H_
#define PAGEMILL_CC_ENGINE_ENGINE_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/clock.h"
#include "cc/base/log_sink.h"
#include "cc/base/status.h"
#include "cc/base/timeline.h"
#include "cc/engine/engine_client.h"
#include "cc/engine/engine_options.h"
#include "cc/engine/engine_stats.h"
#include "cc/engine/request_output.h"
#include "cc/engine/runner.h"
#include "cc/engine/runner_control.h"
#include "cc/engine/saved_sessions.h"
#include "cc/kv_cache/event_log.h"
#include "cc/kv_cache/held_prefixes.h"
#include "cc/scheduler/input_chunk.h"
#include "cc/scheduler/pause_mode.h"
#include "cc/step/request.h"

namespace pagemill::engine {

class ModelControl;
class StepLoop;

struct KvEventBatch {
  // Random; of one run of an engine. Another id: the engine was started anew, with an empty cache
  // and events from number 1.
  uint64_t log_id = 0;
  std::vector<kv_cache::KvEvent> events;
  uint64_t next = 1;     // number of the event after them
  uint64_t dropped = 0;  // events before them that are not kept any more
};

class Engine {
 public:
  // Starts the engine's thread. kInvalidArgument if options or the runner's limits make no
  // sense. `clock` outlives the engine.
  static StatusOr<std::unique_ptr<Engine>> Create(const EngineOptions& options,
                                                  std::unique_ptr<Runner> runner,
                                                  const Clock* clock, LogSink log);
  // The same with a runner that the caller keeps and that outlives the engine.
  static StatusOr<std::unique_ptr<Engine>> Create(const EngineOptions& options, Runner* runner,
                                                  const Clock* clock, LogSink log);
  ~Engine();  // Shutdown()
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Opens a client with request ids, outputs and a descriptor of its own. The engine outlives it.
  // kResourceExhausted: ClientOutputs::kMaxClients are open.
  StatusOr<std::unique_ptr<EngineClient>> NewClient();

  // The methods of the engine's own client; documented in engine_client.h.
  Status Submit(step::Request request) { return client_->Submit(std::move(request)); }
  void Abort(step::RequestId id) { client_->Abort(id); }
  void Release(step::RequestId id) { client_->Release(id); }
  Status Extend(step::RequestId id, scheduler::InputChunk chunk) {
    return client_->Extend(id, std::move(chunk));
  }
  std::vector<RequestOutput> Poll() { return client_->Poll(); }
  std::vector<RequestOutput> Wait(double timeout_s) { return client_->Wait(timeout_s); }
  int output_fd() const { return client_->output_fd(); }

  // An id for adapter weights that the caller is about to load. Each load takes a new one, that of
  // weights which were loaded before too: no id is issued twice, by any engine anywhere, so KV that
  // was cached under other weights is never found. Submit() refuses ids that are not issued here.
  step::AdapterId NewAdapterId();
  // Adds to the statistics of the adapters that the caller keeps.
  void CountAdapters(uint64_t loaded, uint64_t evicted);

  // A consistent snapshot; never waits for a step, so it also works on a stuck engine.
  EngineStats stats() const;

  // Refuses new requests from now on; those accepted run to their end. Returns at once.
  void Drain();
  // Waits until no accepted request is unfinished. False on timeout.
  bool WaitIdle(double timeout_s);
  // Refuses new requests, aborts all, waits for the step in flight, and joins the thread. Outputs
  // stay readable. Idempotent.
  void Shutdown();

  // Until Resume(), plans no step (kKeep), or none for a request that has not started (kWait), or
  // ends all requests and starts no other (kAbort). New requests are taken and wait. A second call
  // changes the mode.
  void Pause(scheduler::PauseMode mode);
  // Waits until the runner is at rest for as long as the pause lasts: no step is in flight, and
  // with kWait no request that started is unfinished, except those that wait for input. False on
  // timeout, and if the engine is not paused.
  bool WaitPaused(double timeout_s);
  void Resume();

  // Runs `run` on the engine's thread with the runner at rest: no step is in flight and no KV is
  // being copied. No step starts from this call on until `run` has returned; requests keep their
  // slots and blocks, and a pause stays what it is. Returns what `run` returns. kDeadlineExceeded:
  // the runner was not at rest within `timeout_s`, and `run` never runs. kUnavailable: shut down.
  // `run` must not wait for this engine.
  Status RunAtRest(std::function<Status()> run, double timeout_s);

  // Records what the engine's thread does in a step on `timeline`, until it is called with null.
  // `attach` runs at the same moment on that thread, while the runner executes nothing: what else
  // records on it takes it there, or drops it. kUnavailable after Shutdown().
  Status Record(std::shared_ptr<Timeline> timeline, const std::function<void()>& attach);

  // Frees the memory of the weights, and of KV if `kv` says so, when the runner is at rest; until
  // Wake(), no step runs and new requests are refused. Requests that were accepted go on after it,
  // with the same tokens; without their KV they compute it again. KvMemory::kFree forgets cached
  // prefixes, except those in tiers and connectors. Asleep already: only frees KV. Errors:
  // kUnimplemented if the runner offers no control, kFailedPrecondition for kFree while a session
  // is saved or restored, those of RunAtRest() and of RunnerControl.
  Status Sleep(KvMemory kv, double timeout_s);
  // Loads the weights again. Nothing happens if the engine is awake.
  Status Wake(double timeout_s);
  // Goes on with other weights of the same model: next tokens are theirs, also those of requests
  // under way, which compute all their tokens again. Forgets all cached prefixes and embeddings of
  // media, those in tiers too. Not OK: nothing has changed. Errors: those of Sleep(), and
  // kFailedPrecondition with KvTierOptions::names_weights(), or if a connector cannot forget. Old
  // and new weights are in memory at once, as `where` says, unless the engine is asleep.
  Status UpdateWeights(const WeightSources& sources, double timeout_s,
                       NewWeights where = NewWeights::kBeside,
                       const std::optional<std::string>& version = std::nullopt);
  // Names the weights as they are, for tokens from now on: RequestOutput::weight_versions. An
  // update with a `version` does that, too. The errors of RunAtRest().
  Status SetWeightVersion(const std::string& version, double timeout_s);

  // Forgets all cached prefixes, those in tiers and connectors too. False (and nothing is
  // forgotten) while requests run, unless they are preempted for it and compute everything again,
  // while KV is being loaded, if a connector of the host's cannot forget, or after Shutdown(). The
  // files of a connector's folder are removed beside the steps, at the latest by Shutdown().
  bool ResetPrefixCache(bool preempt_running = false);
  // Forgets the embeddings of media that no running request needs; their memory is free with the
  // next step. kUnavailable after Shutdown().
  Status ResetEncoderCache();

  // Keeps the cached KV of a prompt's leading tokens from being evicted, until UnpinPrefix() or
  // until the prefix cache is reset (Sleep() and UpdateWeights() may do that). `like` has what its
  // KV depends on besides the model: tokens, salt, adapter. kNotFound if nothing of it is cached,
  // kResourceExhausted above EngineOptions::max_pinned_blocks, kFailedPrecondition without a prefix
  // cache, kUnavailable after Shutdown().
  StatusOr<kv_cache::PinnedPrefix> PinPrefix(const step::Request& like);
  // False if there is no such pin.
  bool UnpinPrefix(kv_cache::PinId id);

  // What came to the prefix cache and went since event number `sequence` (1 is the first): of the
  // EngineOptions::max_kv_events that are kept, at most the first `max_events`. For routers: a
  // client polls, and passes `next` the next time. kFailedPrecondition if no events are made,
  // kInvalidArgument for a number that is still to come, kUnavailable after Shutdown().
  StatusOr<KvEventBatch> KvEvents(uint64_t sequence,
                                  size_t max_events = std::numeric_limits<size_t>::max());

  // Saves a conversation so that it outlives the process, or brings one back (docs/kv_tiers.md).
  // `like` has what its KV depends on besides the model: the tokens, of Save only, salt and
  // adapter. Both wait until no step is in flight; then steps go on while bytes are copied. Returns
  // and errors are those of SavedSessions; besides, kUnimplemented if the runner's KV cannot be
  // copied, kFailedPrecondition without EngineOptions::kv_tiers.fingerprint or prefix caching.
  StatusOr<int32_t> SaveSession(const std::string& path, step::Request like);
  StatusOr<RestoredSession> RestoreSession(const std::string& path, step::Request like = {});

 private:
  Engine(std::unique_ptr<StepLoop> loop, StatusOr<SavedSessions> sessions,
         std::unique_ptr<ModelControl> control);

  std::unique_ptr<Runner> owned_runner_;  // null if the caller keeps it
  std::unique_ptr<StepLoop> loop_;        // destroyed before: it uses the runner
  std::unique_ptr<EngineClient> client_;
  StatusOr<SavedSessions> sessions_;  // or why there are none
  const std::unique_ptr<ModelControl> control_;
  const uint64_t kv_event_log_id_;
};

}  // namespace pagemill::engine

#endif  // PAGEMILL_CC_ENGINE_ENGINE_H_
