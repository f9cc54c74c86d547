// File: cc/scheduler/scheduler_stats.h
// Gauges and counters of a scheduler; counters only grow.
#ifndef PAGEMILL_CC_SCHEDULER_SCHEDULER_STATS_H_
#define PAGEMILL_CC_SCHEDULER_SCHEDULER_STATS_H_

#include <array>
#include <cstdint>

#include "cc/scheduler/park_reason.h"
#include "cc/step/finish_reason.h"

namespace pagemill::scheduler {

struct SchedulerStats {
  int64_t num_running = 0;
  int64_t num_waiting = 0;                            // new and preempted
  std::array<int64_t, kNumParkReasons> num_parked{};  // by ParkReason
  int64_t num_started = 0;                            // started and not ended, whatever they do now
  int64_t kv_blocks_total = 0;                        // the null block does not count
  int64_t kv_blocks_used = 0;                         // held by requests

  uint64_t num_preemptions = 0;
  uint64_t prefix_cache_query_tokens = 0;  // prompt tokens of first starts that looked
  uint64_t prefix_cache_hit_tokens = 0;
  uint64_t kv_query_tokens = 0;             // that a connector was asked for
  uint64_t kv_loaded_tokens = 0;            // loaded from elsewhere instead of being computed
  uint64_t num_failed_kv_loads = 0;         // some or all of it did not come
  uint64_t num_stray_transfer_results = 0;  // results of transfers that were not under way
  uint64_t prompt_tokens = 0;               // of requests that started, cached ones included
  uint64_t generation_tokens = 0;
  uint64_t draft_tokens = 0;  // verified
  uint64_t accepted_draft_tokens = 0;
  std::array<uint64_t, step::kNumFinishReasons> finished{};  // by FinishReason
};

}  // namespace pagemill::scheduler

#endif  // PAGEMILL_CC_SCHEDULER_SCHEDULER_STATS_H_
