// File: cc/scheduler/scheduler_stats.h
// Gauges and counters of a scheduler; counters only grow. A new statistic is a member and a line of
// Visit(): statistics of the engine, /metrics, the Python binding and the C ABI follow.
#ifndef PAGEMILL_CC_SCHEDULER_SCHEDULER_STATS_H_
#define PAGEMILL_CC_SCHEDULER_SCHEDULER_STATS_H_

#include <array>
#include <cstdint>
#include <vector>

#include "cc/base/field_info.h"
#include "cc/scheduler/park_reason.h"
#include "cc/step/finish_reason.h"

namespace pagemill::scheduler {

struct SchedulerStats {
  int64_t num_running = 0;
  int64_t num_waiting = 0;
  int64_t kv_blocks_total = 0;
  int64_t kv_blocks_used = 0;
  uint64_t num_preemptions = 0;
  uint64_t prefix_cache_query_tokens = 0;
  uint64_t prefix_cache_hit_tokens = 0;
  uint64_t prefix_cache_evicted_tokens = 0;
  uint64_t prefix_cache_partial_tokens = 0;
  uint64_t kv_query_tokens = 0;
  uint64_t kv_loaded_tokens = 0;
  uint64_t num_failed_kv_loads = 0;
  uint64_t num_stray_transfer_results = 0;
  uint64_t prompt_tokens = 0;
  uint64_t generation_tokens = 0;
  uint64_t num_drafts = 0;
  uint64_t draft_tokens = 0;
  uint64_t accepted_draft_tokens = 0;
  std::vector<uint64_t> accepted_drafts_by_position;  // up to the last that was ever accepted
  int64_t num_running_adapters = 0;
  int64_t num_waiting_for_adapter = 0;
  int64_t encoder_cache_tokens_total = 0;
  int64_t encoder_cache_tokens_used = 0;
  uint64_t encoder_cache_queries = 0;
  uint64_t encoder_cache_hits = 0;

  // Used by the scheduler only: not visited.
  std::array<int64_t, kNumParkReasons> num_parked{};         // by ParkReason
  int64_t num_started = 0;                                   // started and not ended
  std::array<uint64_t, step::kNumFinishReasons> finished{};  // by FinishReason

  template <typename Visitor>
  static void Visit(Visitor&& visit) {
    using S = SchedulerStats;
    visit("num_running", &S::num_running,
          Gauge("requests that hold a slot", "num_requests_running").InC(1));
    visit("num_waiting", &S::num_waiting,
          Gauge("requests without a slot, new or preempted", "num_requests_waiting").InC(2));
    visit("kv_blocks_total", &S::kv_blocks_total,
          Gauge("usable KV blocks", "kv_blocks_total").InC(4, "num_blocks"));
    visit("kv_blocks_used", &S::kv_blocks_used,
          Gauge("KV blocks that requests hold", "kv_blocks_used").InC(3, "num_used_blocks"));
    visit("num_preemptions", &S::num_preemptions,
          Counter("requests preempted", "num_preemptions").InC(8));
    visit("prefix_cache_query_tokens", &S::prefix_cache_query_tokens,
          Counter("prompt tokens looked up in the prefix cache", "prefix_cache_queries").InC(9));
    visit("prefix_cache_hit_tokens", &S::prefix_cache_hit_tokens,
          Counter("prompt tokens found in the prefix cache", "prefix_cache_hits").InC(10));
    visit("prefix_cache_evicted_tokens", &S::prefix_cache_evicted_tokens,
          Counter("prompt tokens not found in the prefix cache whose KV had been in it and was "
                  "evicted"));
    visit("prefix_cache_partial_tokens", &S::prefix_cache_partial_tokens,
          Counter("prompt tokens looked up in the prefix cache that cannot be found there: those "
                  "behind the last full block, or the last token"));
    visit("kv_query_tokens", &S::kv_query_tokens,
          Counter("prompt tokens looked up in KV tiers and connectors",
                  "external_prefix_cache_queries")
              .InC(28));
    visit("kv_loaded_tokens", &S::kv_loaded_tokens,
          Counter("prompt tokens loaded from KV tiers and connectors", "external_prefix_cache_hits")
              .InC(29));
    visit("num_failed_kv_loads", &S::num_failed_kv_loads,
          Counter("KV loads that failed at least in part and were computed", "kv_failed_loads")
              .InC(30));
    visit("num_stray_transfer_results", &S::num_stray_transfer_results,
          Counter("results of KV transfers that were not under way", "kv_stray_results"));
    visit("prompt_tokens", &S::prompt_tokens,
          Counter("prompt tokens of requests that started, cached ones included", "prompt_tokens")
              .InC(11));
    visit("generation_tokens", &S::generation_tokens,
          Counter("tokens generated", "generation_tokens").InC(12));
    visit("num_drafts", &S::num_drafts,
          Counter("steps of requests with draft tokens", "spec_decode_num_drafts").InC(31));
    visit("draft_tokens", &S::draft_tokens,
          Counter("draft tokens verified", "spec_decode_num_draft_tokens").InC(32));
    visit("accepted_draft_tokens", &S::accepted_draft_tokens,
          Counter("draft tokens accepted", "spec_decode_num_accepted_tokens").InC(33));
    visit("accepted_drafts_by_position", &S::accepted_drafts_by_position,
          Counters("draft tokens accepted, by their place among those of a step; up to the last "
                   "place that had any"));
    visit("num_running_adapters", &S::num_running_adapters,
          Gauge("different adapters of requests that hold a slot", "num_adapters_running"));
    visit("num_waiting_for_adapter", &S::num_waiting_for_adapter,
          Gauge("requests that wait until an adapter gets a slot",
                "num_requests_waiting_for_adapter"));
    visit("encoder_cache_tokens_total", &S::encoder_cache_tokens_total,
          Gauge("embeddings of media for which there is room", "encoder_cache_tokens_total"));
    visit("encoder_cache_tokens_used", &S::encoder_cache_tokens_used,
          Gauge("embeddings of media that are kept, needed or not", "encoder_cache_tokens_used"));
    visit("encoder_cache_queries", &S::encoder_cache_queries,
          Counter("media of requests whose embeddings were looked up", "encoder_cache_queries"));
    visit("encoder_cache_hits", &S::encoder_cache_hits,
          Counter("media of requests whose embeddings were found", "encoder_cache_hits"));
  }
};

}  // namespace pagemill::scheduler

#endif  // PAGEMILL_CC_SCHEDULER_SCHEDULER_STATS_H_
