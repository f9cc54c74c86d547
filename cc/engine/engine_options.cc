#include "cc/engine/engine_options.h"

#include "cc/base/option_check.h"
#include "cc/kv_cache/block_hash.h"
#include "cc/scheduler/policies/policies.h"

namespace pagemill::engine {

Status EngineOptions::Validate() const {
  PAGEMILL_RETURN_IF_ERROR(CheckAtLeast("max_num_scheduled_tokens", max_num_scheduled_tokens, 0));
  PAGEMILL_RETURN_IF_ERROR(CheckAtLeast("max_num_seqs", max_num_seqs, 0));
  PAGEMILL_RETURN_IF_ERROR(
      CheckAtLeast("long_prefill_token_threshold", long_prefill_token_threshold, 0));
  PAGEMILL_RETURN_IF_ERROR(CheckAtLeast("max_partial_prefills", max_partial_prefills, 0));
  PAGEMILL_RETURN_IF_ERROR(CheckAtLeast("max_long_partial_prefills", max_long_partial_prefills, 0));
  PAGEMILL_RETURN_IF_ERROR(CheckAtLeast("max_waiting_requests", max_waiting_requests, 0));
  PAGEMILL_RETURN_IF_ERROR(CheckAtLeast("max_waiting_tokens", max_waiting_tokens, 0));
  PAGEMILL_RETURN_IF_ERROR(CheckAtLeast("max_waiting_per_tenant", max_waiting_per_tenant, 0));
  // The upper bound keeps sums of microseconds in range.
  constexpr int64_t kLongestMillis = 1'000'000'000'000;
  if (max_queue_time_ms < 0 || max_queue_time_ms > kLongestMillis) {
    return InvalidArgument("max_queue_time_ms is " + std::to_string(max_queue_time_ms) +
                           ", it must be from 0 to " + std::to_string(kLongestMillis) +
                           " (--max-queue-time)");
  }
  constexpr int64_t kLongestIntervalMicros = 1'000'000;
  if (output_interval_us < 0 || output_interval_us > kLongestIntervalMicros) {
    return InvalidArgument("output_interval_us is " + std::to_string(output_interval_us) +
                           ", it must be from 0 to " + std::to_string(kLongestIntervalMicros));
  }
  PAGEMILL_RETURN_IF_ERROR(CheckAtLeast("max_pinned_blocks", max_pinned_blocks, 0));
  PAGEMILL_RETURN_IF_ERROR(CheckAtLeast("max_kv_events", max_kv_events, 0));
  if (!(kv_block_age_sample >= 0 && kv_block_age_sample <= 1)) {
    return InvalidArgument("kv_block_age_sample is " + std::to_string(kv_block_age_sample) +
                           ", it must be from 0 to 1");
  }
  PAGEMILL_RETURN_IF_ERROR(CheckAtLeast("max_step_us", max_step_us.value_or(0), 0));
  PAGEMILL_RETURN_IF_ERROR(CheckAtLeast("max_in_flight_steps", max_in_flight_steps, 1));
  PAGEMILL_RETURN_IF_ERROR(scheduler::MakePolicy(scheduling_policy, tenant_weights).status());
  PAGEMILL_RETURN_IF_ERROR(kv_tiers.Validate());
  return kv_cache::ParseHashAlgorithm(prefix_caching_hash).status();
}

}  // namespace pagemill::engine
