#include "cc/scheduler/scheduler_options.h"

#include "cc/base/option_check.h"
#include "cc/scheduler/policies/policies.h"

namespace pagemill::scheduler {

Status SchedulerOptions::Validate() const {
  PAGEMILL_RETURN_IF_ERROR(CheckAtLeast("max_num_tokens", max_num_tokens, 1));
  PAGEMILL_RETURN_IF_ERROR(CheckAtLeast("max_num_seqs", max_num_seqs, 1));
  PAGEMILL_RETURN_IF_ERROR(CheckAtLeast("max_num_logits_rows", max_num_logits_rows, 1));
  PAGEMILL_RETURN_IF_ERROR(CheckAtLeast("max_model_len", max_model_len, 1));
  PAGEMILL_RETURN_IF_ERROR(CheckAtLeast("vocab_size", vocab_size, 0));
  PAGEMILL_RETURN_IF_ERROR(
      CheckAtLeast("long_prefill_token_threshold", long_prefill_token_threshold, 0));
  PAGEMILL_RETURN_IF_ERROR(CheckAtLeast("max_partial_prefills", max_partial_prefills, 0));
  PAGEMILL_RETURN_IF_ERROR(CheckAtLeast("max_long_partial_prefills", max_long_partial_prefills, 0));
  if (max_long_partial_prefills > 0 && long_prefill_token_threshold == 0) {
    return InvalidArgument("max_long_partial_prefills is " +
                           std::to_string(max_long_partial_prefills) +
                           ", but long_prefill_token_threshold is 0, so no prompt is long");
  }
  PAGEMILL_RETURN_IF_ERROR(CheckAtLeast("pipeline_stages", pipeline_stages, 1));
  PAGEMILL_RETURN_IF_ERROR(CheckAtLeast("max_waiting_requests", max_waiting_requests, 0));
  PAGEMILL_RETURN_IF_ERROR(CheckAtLeast("routed_experts_per_token", routed_experts_per_token, 0));
  PAGEMILL_RETURN_IF_ERROR(CheckAtLeast("max_adapters", max_adapters, 0));
  PAGEMILL_RETURN_IF_ERROR(CheckAtLeast("max_encoder_tokens", max_encoder_tokens, 0));
  PAGEMILL_RETURN_IF_ERROR(CheckAtLeast("encoder_cache_tokens", encoder_cache_tokens, 0));
  PAGEMILL_RETURN_IF_ERROR(CheckAtLeast("max_waiting_tokens", max_waiting_tokens, 0));
  PAGEMILL_RETURN_IF_ERROR(CheckAtLeast("max_waiting_per_tenant", max_waiting_per_tenant, 0));
  PAGEMILL_RETURN_IF_ERROR(CheckAtLeast("max_draft_tokens", max_draft_tokens, 0));
  PAGEMILL_RETURN_IF_ERROR(MakePolicy(policy, tenant_weights).status());
  PAGEMILL_RETURN_IF_ERROR(kv_cache.Validate());
  if (max_draft_tokens > kv_cache.MaxRejectedTokens()) {
    return InvalidArgument("max_draft_tokens is " + std::to_string(max_draft_tokens) +
                           ", but the model's recurrent states are kept for " +
                           std::to_string(kv_cache.MaxRejectedTokens()) +
                           " draft tokens: KvGroupOptions.recent_states must be one more");
  }
  return OkStatus();
}

}  // namespace pagemill::scheduler
