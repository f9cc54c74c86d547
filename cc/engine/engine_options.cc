#include "cc/engine/engine_options.h"

#include "cc/kv_cache/block_hash.h"
#include "cc/scheduler/policies/policies.h"

namespace pagemill::engine {
namespace {

Status CheckAtLeast(const char* field, int64_t value, int64_t least) {
  if (value >= least) return OkStatus();
  return InvalidArgument(std::string(field) + " is " + std::to_string(value) +
                         ", it must be at least " + std::to_string(least));
}

}  // namespace

Status EngineOptions::Validate() const {
  PM_RETURN_IF_ERROR(CheckAtLeast("max_num_scheduled_tokens", max_num_scheduled_tokens, 0));
  PM_RETURN_IF_ERROR(CheckAtLeast("max_num_seqs", max_num_seqs, 0));
  PM_RETURN_IF_ERROR(CheckAtLeast("long_prefill_token_threshold", long_prefill_token_threshold, 0));
  PM_RETURN_IF_ERROR(CheckAtLeast("max_partial_prefills", max_partial_prefills, 0));
  PM_RETURN_IF_ERROR(CheckAtLeast("max_long_partial_prefills", max_long_partial_prefills, 0));
  PM_RETURN_IF_ERROR(CheckAtLeast("max_waiting_requests", max_waiting_requests, 0));
  PM_RETURN_IF_ERROR(CheckAtLeast("max_waiting_tokens", max_waiting_tokens, 0));
  PM_RETURN_IF_ERROR(CheckAtLeast("max_waiting_per_tenant", max_waiting_per_tenant, 0));
  PM_RETURN_IF_ERROR(CheckAtLeast("max_queue_time_ms", max_queue_time_ms, 0));
  PM_RETURN_IF_ERROR(CheckAtLeast("max_in_flight_steps", max_in_flight_steps, 1));
  PM_RETURN_IF_ERROR(CheckAtLeast("max_draft_tokens", max_draft_tokens, 0));
  PM_RETURN_IF_ERROR(CheckAtLeast("max_step_draft_tokens", max_step_draft_tokens, 0));
  PM_RETURN_IF_ERROR(scheduler::MakePolicy(scheduling_policy, tenant_weights).status());
  PM_RETURN_IF_ERROR(kv_tiers.Validate());
  return kv_cache::ParseHashAlgorithm(prefix_caching_hash).status();
}

}  // namespace pagemill::engine
