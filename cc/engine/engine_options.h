// File: cc/engine/engine_options.h
// What can be chosen about an engine. What a runner can hold is not chosen here but read from its
// RunnerLimits; options that repeat one of its limits may only lower it.
#ifndef PAGEMILL_CC_ENGINE_ENGINE_OPTIONS_H_
#define PAGEMILL_CC_ENGINE_ENGINE_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "cc/base/status.h"
#include "cc/engine/kv_tier_options.h"
#include "cc/scheduler/policies/tenant_weights.h"

namespace pagemill::engine {

struct EngineOptions {
  // Tokens of one step over all requests; 0 = the runner's limit.
  int32_t max_num_scheduled_tokens = 0;
  // Requests that run at the same time; 0 = the runner's limit.
  int32_t max_num_seqs = 0;
  // Most tokens of one request in one step, so that a long prompt does not delay the tokens of
  // others; 0 = no cap. Without effect on a runner that cannot chunk prompts.
  int32_t long_prefill_token_threshold = 0;
  // Requests whose prompt is partly computed at a time, which share a step's tokens equally; 0 = no
  // limit. Of those, so many may be longer than long_prefill_token_threshold; 0 = no limit.
  int32_t max_partial_prefills = 0;
  int32_t max_long_partial_prefills = 0;
  // Requests that may wait beyond those for which a slot is free. More are refused with
  // kResourceExhausted.
  int32_t max_waiting_requests = 1024;
  // Prompt tokens of requests that have not started; 0 = no bound. More are refused with
  // kResourceExhausted, except that an empty queue accepts one larger prompt.
  int64_t max_waiting_tokens = 0;
  // Requests of one tenant that may wait beyond those for which a slot is free; 0 = no bound.
  int32_t max_waiting_per_tenant = 0;
  // The start deadline of requests that bring none, in milliseconds from their submission; 0 =
  // none. A request that would probably start later is refused with kResourceExhausted.
  int64_t max_queue_time_ms = 0;
  // Order of waiting requests and choice of victims: a name of scheduler/policies/policies.h
  // ("fair", "fcfs", "priority").
  std::string scheduling_policy = "fcfs";
  // For policy "fair": tenant -> weight, from 1 to 1,000; others have weight 1.
  scheduler::TenantWeights tenant_weights;
  // false: a step does not end inside the placeholders of a media item.
  bool chunked_media_input = true;
  // Reuse the KV blocks of equal prefixes. Always off if the runner's limits exclude it.
  bool enable_prefix_caching = true;
  // Which cached block without references is handed out first: a name of
  // kv_cache/eviction/policies.h ("adaptive", "lru", "reuse").
  std::string prefix_cache_eviction = "adaptive";
  // Most KV blocks that Engine::PinPrefix() may hold at a time; requests cannot count on them. 0 =
  // no pinning.
  int32_t max_pinned_blocks = 0;
  // KV events that are kept for Engine::KvEvents(); 0 = none are made.
  int32_t max_kv_events = 0;
  // Share of the cached contents whose age is measured (EngineStats::kv_block_lifetime and others),
  // 0 to 1; 0 = none is.
  double kv_block_age_sample = 0;
  // "xxh3-128" (fast) or "sha256" (where tenants must not be able to construct collisions).
  std::string prefix_caching_hash = "xxh3-128";
  // Steps handed to the runner before the first of them is collected. More than 1 pays on devices
  // that work asynchronously. If the runner takes no placeholders, only chunks of prompts run
  // ahead.
  int32_t max_in_flight_steps = 1;
  // KV beyond the pool: tiers and connectors, and what names saved sessions.
  KvTierOptions kv_tiers;
  // Least time between two notifications of clients that outputs wait, in microseconds; 0: after
  // each step. First tokens and ends are notified at once, and so is everything while a step with a
  // prompt runs or no step does. If the CPU computes the steps, each notification takes a core from
  // one.
  int64_t output_interval_us = 0;
  // The longest step while requests decode, in microseconds: prompts are computed in parts that
  // keep to it, of at least StepBudgeter::kLeastTokens tokens. 0 = no limit; empty = a multiple of
  // what the decoding requests take alone.
  std::optional<int64_t> max_step_us;
  // Verify scheduler and cache after every step. For tests: costs O(blocks).
  bool check_integrity = false;

  // kInvalidArgument names the field, its value and its range.
  Status Validate() const;
};

}  // namespace pagemill::engine

#endif  // PAGEMILL_CC_ENGINE_ENGINE_OPTIONS_H_
