// File: cc/scheduler/request_event.h
// News of one request that an update or an abort brings.
#ifndef PAGEMILL_CC_SCHEDULER_REQUEST_EVENT_H_
#define PAGEMILL_CC_SCHEDULER_REQUEST_EVENT_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "cc/base/status.h"
#include "cc/step/finish_reason.h"
#include "cc/step/request.h"
#include "cc/step/step_result.h"
#include "cc/step/token_list.h"

namespace pagemill::scheduler {

struct RequestEvent {
  step::RequestId id;
  step::TokenList new_token_ids;
  std::vector<step::TokenLogprobs> logprobs;  // one per new token, where asked for
  // All of them at once, with the event of the step that completes the prompt.
  std::optional<std::vector<step::TokenLogprobs>> prompt_logprobs;
  std::optional<std::vector<float>> pooled;
  bool first_tokens = false;  // `new_token_ids` are the first ones of the request
  int32_t num_cached_tokens = 0;
  // With finish_reason only; RequestOutput has what they are.
  int32_t num_evicted_tokens = 0;
  int32_t num_draft_steps = 0;
  int32_t num_draft_tokens = 0;
  int32_t num_accepted_draft_tokens = 0;
  std::vector<uint16_t> routed_experts;

  // Set: a turn of a request with streaming input is over; it waits for Scheduler::Extend().
  std::optional<step::FinishReason> turn_finished;
  std::optional<step::FinishReason> finish_reason;  // set: the request is gone, its id is free
  std::optional<int32_t> stop_token_id;
  Status error;                               // where finish_reason is kError
  step::KvTransferParams kv_transfer_params;  // of the connector; with finish_reason only
};

}  // namespace pagemill::scheduler

#endif  // PAGEMILL_CC_SCHEDULER_REQUEST_EVENT_H_
