// File: cc/engine/engine_stats.h
// A snapshot of an engine for metrics, readiness and liveness: what the scheduler, the KV cache and
// its tiers count, and what only the engine's loop knows. Gauges are of this moment, counters only
// grow, durations are in seconds. A new statistic is a member and a line of Visit(), here or in the
// component that counts it: /metrics, the Python binding and the C ABI follow.
#ifndef PAGEMILL_CC_ENGINE_ENGINE_STATS_H_
#define PAGEMILL_CC_ENGINE_ENGINE_STATS_H_

#include <cstdint>

#include "cc/base/field_info.h"
#include "cc/kv_cache/block_ages.h"
#include "cc/kv_cache/connector.h"
#include "cc/scheduler/scheduler_stats.h"

namespace pagemill::engine {

// `num_waiting` counts the requests too that the scheduler has not seen yet.
struct EngineStats : scheduler::SchedulerStats,
                     kv_cache::KvConnectorStats,
                     kv_cache::BlockAgeStats {
  int64_t num_waiting_tokens = 0;
  double estimated_wait_s = 0;
  int64_t num_unread_outputs = 0;
  bool draining = false;
  bool paused = false;
  bool asleep = false;
  uint64_t num_steps = 0;
  uint64_t num_failed_steps = 0;
  uint64_t num_submitted = 0;
  uint64_t num_refused = 0;
  uint64_t adapters_loaded = 0;
  uint64_t adapters_evicted = 0;
  uint64_t finished_stop = 0;
  uint64_t finished_length = 0;
  uint64_t finished_abort = 0;
  uint64_t finished_error = 0;
  uint64_t finished_repetition = 0;
  double last_step_s = 0;
  int64_t step_budget_tokens = 0;
  uint64_t heartbeat = 0;
  double progress_age_s = 0;

  template <typename Visitor>
  static void Visit(Visitor&& visit) {
    using S = EngineStats;
    SchedulerStats::Visit(visit);
    KvConnectorStats::Visit(visit);
    BlockAgeStats::Visit(visit);
    visit("num_waiting_tokens", &S::num_waiting_tokens,
          Gauge("prompt tokens of requests that have not started", "num_prompt_tokens_waiting")
              .InC(22));
    visit("estimated_wait_s", &S::estimated_wait_s,
          Gauge("how long a request that came now would wait, by the speed of recent steps; 0 if "
                "not known",
                "estimated_wait_seconds")
              .InC(23));
    visit("num_unread_outputs", &S::num_unread_outputs,
          Gauge("requests with outputs that no client has read", "num_unread_outputs").InC(5));
    visit("draining", &S::draining,
          Gauge("1 if new requests are refused", "engine_draining").InC(24));
    visit("paused", &S::paused,
          Gauge("1 from a pause to its end by resume", "engine_paused").InC(21));
    visit(
        "asleep", &S::asleep,
        Gauge("1 while the weights are not in memory: sleep until wake", "engine_asleep").InC(25));
    visit("num_steps", &S::num_steps, Counter("steps run", "engine_steps").InC(6));
    visit("num_failed_steps", &S::num_failed_steps,
          Counter("steps that failed as a whole", "engine_failed_steps").InC(7));
    visit("num_submitted", &S::num_submitted,
          Counter("requests accepted", "requests_accepted").InC(13));
    visit("num_refused", &S::num_refused,
          Counter("requests refused when submitted", "requests_refused").InC(14));
    visit("adapters_loaded", &S::adapters_loaded,
          Counter("adapters loaded, reloads included", "adapter_loads"));
    visit("adapters_evicted", &S::adapters_evicted,
          Counter("adapters that left memory for others", "adapter_evictions"));
    visit("finished_stop", &S::finished_stop,
          Counter("requests that ended at a stop token or with their pooled output").InC(15));
    visit("finished_length", &S::finished_length,
          Counter("requests that ended at max_tokens or the context's end").InC(16));
    visit("finished_abort", &S::finished_abort, Counter("requests that a client ended").InC(17));
    visit("finished_error", &S::finished_error, Counter("requests that failed").InC(18));
    visit("last_step_s", &S::last_step_s,
          Gauge("duration of the last finished step, from its plan to its outputs").InC(26));
    visit("step_budget_tokens", &S::step_budget_tokens,
          Gauge("prompt tokens that the newest step might run beside requests that decode; 0 = no "
                "limit",
                "step_budget_tokens")
              .InC(27));
    visit("heartbeat", &S::heartbeat, Counter("turns of the engine's loop").InC(19));
    visit("finished_repetition", &S::finished_repetition,
          Counter("requests whose output repeated itself (repetition_max_pattern)").InC(34));
    visit("progress_age_s", &S::progress_age_s,
          Gauge("time since the last finished step, or since work came to an idle engine; 0 if "
                "there is no work or all of it waits for a client",
                "engine_progress_age_seconds")
              .InC(20));
  }

  // Is there work, and has none of it been finished for so long? Liveness probes ask this.
  bool IsStuck(double threshold_s) const { return progress_age_s > threshold_s; }
};

}  // namespace pagemill::engine

#endif  // PAGEMILL_CC_ENGINE_ENGINE_STATS_H_
