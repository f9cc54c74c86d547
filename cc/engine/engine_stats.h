// File: cc/engine/engine_stats.h
// A snapshot of an engine for metrics, readiness and liveness. Gauges are of this moment, counters
// only grow, durations are in seconds.
#ifndef PAGEMILL_CC_ENGINE_ENGINE_STATS_H_
#define PAGEMILL_CC_ENGINE_ENGINE_STATS_H_

#include <cstdint>

namespace pagemill::engine {

struct EngineStats {
  // Gauges.
  int64_t num_running = 0;         // requests that hold a slot
  int64_t num_waiting = 0;         // requests without one: new or preempted
  int64_t num_waiting_tokens = 0;  // of prompts of requests that have not started
  // How long a request that came now would wait, by the speed of recent steps; 0 where not known.
  double estimated_wait_s = 0;
  int64_t kv_blocks_total = 0;     // usable blocks (the null block does not count)
  int64_t kv_blocks_used = 0;      // held by requests; cached ones that nobody holds do not count
  int64_t num_unread_outputs = 0;  // requests with outputs that nobody has read
  bool draining = false;           // new requests are refused
  bool paused = false;             // from Pause() to Resume()

  // Counters.
  uint64_t num_steps = 0;
  uint64_t num_failed_steps = 0;  // the runner failed the whole step
  uint64_t num_preemptions = 0;
  uint64_t prefix_cache_query_tokens = 0;  // prompt tokens looked up
  uint64_t prefix_cache_hit_tokens = 0;    // of those, found
  // KV of tiers and connectors (kv_tier_options.h); a block counts once per group of layers.
  uint64_t kv_query_tokens = 0;          // prompt tokens that they were asked for
  uint64_t kv_loaded_tokens = 0;         // that were loaded instead of computed
  uint64_t num_failed_kv_loads = 0;      // of which some or all did not come and was computed
  uint64_t num_failed_kv_transfers = 0;  // copies of any direction that ended with an error
  uint64_t kv_blocks_loaded = 0;
  uint64_t kv_blocks_stored = 0;
  uint64_t kv_blocks_demoted = 0;  // copied from host memory to disk
  uint64_t kv_blocks_evicted = 0;  // gone from the last medium that had them
  uint64_t kv_blocks_dropped = 0;  // not stored, because the medium was busy
  uint64_t prompt_tokens = 0;      // of requests that started, cached ones included
  uint64_t generation_tokens = 0;
  uint64_t num_submitted = 0;  // accepted requests
  uint64_t num_refused = 0;    // refused by Submit
  uint64_t finished_stop = 0;
  uint64_t finished_length = 0;
  uint64_t finished_abort = 0;
  uint64_t finished_error = 0;

  // Progress.
  double last_step_s = 0;  // from the plan of the last finished step to its outputs
  uint64_t heartbeat = 0;  // grows with every turn of the loop
  // Since the last finished step, or since work came to an idle engine; 0 where there is no work,
  // or all of it waits for a client: for input, a release, the end of a pause.
  double progress_age_s = 0;

  // Is there work, and has none of it been finished for so long? Liveness probes ask this.
  bool IsStuck(double threshold_s) const { return progress_age_s > threshold_s; }
};

}  // namespace pagemill::engine

#endif  // PAGEMILL_CC_ENGINE_ENGINE_STATS_H_
