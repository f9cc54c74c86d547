// File: cc/scheduler/scheduler_options.h
// The limits that a scheduler keeps.
#ifndef PAGEMILL_CC_SCHEDULER_SCHEDULER_OPTIONS_H_
#define PAGEMILL_CC_SCHEDULER_SCHEDULER_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "cc/base/status.h"
#include "cc/kv_cache/kv_cache_options.h"
#include "cc/scheduler/policies/tenant_weights.h"
#include "cc/step/request.h"  // MediaFormat

namespace pagemill::scheduler {

struct SchedulerOptions {
  int32_t max_num_tokens = 2048;      // tokens of one step over all requests
  int32_t max_num_seqs = 128;         // requests that run at the same time, and slots
  int32_t max_num_logits_rows = 256;  // rows of logits of one step
  int32_t max_model_len = 2048;       // tokens of one request, prompt and output
  int32_t vocab_size = 0;             // bounds token ids; 0 = not checked
  // Most tokens of one request in one step; 0 = no cap. Not applied to prompts that cannot be cut.
  int32_t long_prefill_token_threshold = 0;
  // Requests whose prompt is partly computed at a time, which share the tokens of a step equally; 0
  // = no limit, and those that started first get all they can use.
  int32_t max_partial_prefills = 0;
  // Of those, requests with a prompt longer than long_prefill_token_threshold; shorter ones pass
  // those that wait for it. 0 = no limit.
  int32_t max_long_partial_prefills = 0;
  // Most draft tokens of one request in one step: lookahead for tokens that the runner proposes.
  int32_t max_draft_tokens = 0;
  // Plan a request's next step before the token that it runs is known: the plan has a placeholder,
  // which the runner replaces. For runners with several steps in flight. With drafts, the place of
  // that token is an upper bound, which the runner corrects.
  bool decode_ahead = false;
  // Steps that the runner computes at the same time, each in another stage of the model. All known
  // tokens of a request that runs to its last one are in one step, and the next token is known when
  // that ends; so a step takes such requests up to an equal part of all.
  int32_t pipeline_stages = 1;
  // Requests that may wait beyond those for which a slot is free.
  int32_t max_waiting_requests = 1024;
  // Prompt tokens of requests that have not started; 0 = no bound. Where none waits, one prompt may
  // be larger.
  int64_t max_waiting_tokens = 0;
  // Requests of one tenant that may wait beyond those for which a slot is free; 0 = no bound.
  int32_t max_waiting_per_tenant = 0;
  std::string policy = "fcfs";   // a name of policies/policies.h
  TenantWeights tenant_weights;  // for policy "fair"; tenants not named here have weight 1
  bool chunked_prefill = true;   // false: a prompt runs in one step
  bool pooling = false;          // the model pools: only pooling requests, else none
  bool token_rows = false;       // it generates, and gives pooling requests a row for each token
  // Ids of experts in a result for each token of a request that wants them; 0 = the runner gives
  // none.
  int32_t routed_experts_per_token = 0;
  // Different adapters among the running requests; 0 = the model takes none.
  int32_t max_adapters = 0;
  // Embeddings that encoders make in one step; 0 = the model takes no media. No item is larger.
  int32_t max_encoder_tokens = 0;
  // Embeddings that are kept; 0 = max_encoder_tokens. No item is larger.
  int32_t encoder_cache_tokens = 0;
  std::vector<step::MediaFormat> media_formats;  // what an item must be, by its encoder
  // false: a step does not end inside the placeholders of an item.
  bool chunked_media_input = true;
  kv_cache::KvCacheOptions kv_cache;

  int32_t EncoderCacheTokens() const {
    return encoder_cache_tokens == 0 ? max_encoder_tokens : encoder_cache_tokens;
  }

  // kInvalidArgument names the field, its value and its range.
  Status Validate() const;
};

}  // namespace pagemill::scheduler

#endif  // PAGEMILL_CC_SCHEDULER_SCHEDULER_OPTIONS_H_
