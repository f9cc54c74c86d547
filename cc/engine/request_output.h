// File: cc/engine/request_output.h
// What a client of the engine learns about one request: news since the last output of that request.
// Outputs that a slow consumer has not read yet are merged, so one output may carry many tokens.
#ifndef PAGEMILL_CC_ENGINE_REQUEST_OUTPUT_H_
#define PAGEMILL_CC_ENGINE_REQUEST_OUTPUT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/field_info.h"
#include "cc/base/status.h"
#include "cc/step/finish_reason.h"
#include "cc/step/request.h"
#include "cc/step/step_result.h"

namespace pagemill::engine {

struct RequestOutput {
  step::RequestId request_id;
  std::vector<int32_t> new_token_ids;
  // One per new token where SamplingParams::logprobs asks for them.
  std::optional<std::vector<step::TokenLogprobs>> logprobs;
  // Once, complete, where SamplingParams::prompt_logprobs asks for them; entry 0 belongs to prompt
  // token 1, so a prompt of one token has none.
  std::optional<std::vector<step::TokenLogprobs>> prompt_logprobs;
  std::optional<std::vector<float>> pooled;  // of a pooling request

  // Set: a turn of a request with streaming input is over; the request waits for Engine::Extend().
  std::optional<step::FinishReason> turn_finished;

  // Set on the last output of the request; everything below is final there.
  std::optional<step::FinishReason> finish_reason;
  // The client's stop token that ended it, or its turn; not set for EOS.
  std::optional<int32_t> stop_token_id;
  Status error;  // why, where finish_reason is kError

  // From the KV connector, for the engine that continues the request; on the last output.
  step::KvTransferParams kv_transfer_params;

  int32_t num_cached_tokens = 0;  // of the prompt, from the prefix cache; set from the start
  // Set on the last output: prompt tokens that the prefix cache had had and evicted, steps that
  // verified drafts, and drafts that were verified and accepted.
  int32_t num_evicted_tokens = 0;
  int32_t num_draft_steps = 0;
  int32_t num_draft_tokens = 0;
  int32_t num_accepted_draft_tokens = 0;
  // Set on the last output, in seconds; a phase that the request never reached has 0.
  double queued_s = 0;   // submission to the first step that runs it
  double prefill_s = 0;  // from there to the first token (or to the end, if there is none)
  double decode_s = 0;   // first token to last token
  // On the last output: versions of the weights, each with the index of the first output token that
  // was sampled with them, ascending; empty until weights get a version (Engine::UpdateWeights()).
  std::vector<std::pair<int32_t, std::string>> weight_versions;
  // On the last output, if Request::return_routed_experts is set: the experts that each layer with
  // experts chose, [tokens, layers, choices], of the prompt and the output without its last token,
  // as far as they were computed.
  std::vector<uint16_t> routed_experts;

  template <typename Visitor>
  static void Visit(Visitor&& visit) {
    using O = RequestOutput;
    visit("request_id", &O::request_id, Value("as submitted"));
    visit("new_token_ids", &O::new_token_ids, Value("since the last output of the request"));
    visit("logprobs", &O::logprobs, Value("one per new token, if the request wants them"));
    visit("prompt_logprobs", &O::prompt_logprobs,
          Value("once and complete, if the request wants them; entry 0 is of prompt token 1"));
    visit("pooled", &O::pooled, Value("of a pooling request"));
    visit("turn_finished", &O::turn_finished,
          Value("a turn of a request with streaming input is over"));
    visit("finish_reason", &O::finish_reason, Value("set on the last output"));
    visit("stop_token_id", &O::stop_token_id,
          Value("the client's stop token that ended the request or its turn"));
    visit("error", &O::error, Value("why, if the request failed"));
    visit("kv_transfer_params", &O::kv_transfer_params,
          Value("of the KV connector, for the engine that goes on with the request"));
    visit("num_cached_tokens", &O::num_cached_tokens,
          Value("of the prompt, from the prefix cache; set from the start"));
    visit("num_evicted_tokens", &O::num_evicted_tokens,
          Value("of the prompt: evicted from the prefix cache before; set on the last output"));
    visit("num_draft_steps", &O::num_draft_steps,
          Value("steps that verified drafts; set on the last output"));
    visit("num_draft_tokens", &O::num_draft_tokens,
          Value("drafts that were verified; set on the last output"));
    visit("num_accepted_draft_tokens", &O::num_accepted_draft_tokens,
          Value("of these, drafts that were accepted; set on the last output"));
    visit("queued_s", &O::queued_s, Value("submission to the first step, in seconds"));
    visit("prefill_s", &O::prefill_s, Value("first step to the first token, in seconds"));
    visit("decode_s", &O::decode_s, Value("first to last token, in seconds"));
    visit("weight_versions", &O::weight_versions,
          Value("(first output token, version of the weights); set on the last output"));
    visit("routed_experts", &O::routed_experts,
          Value("[tokens, layers, choices] of all tokens but the last; set on the last output"));
  }

  bool finished() const { return finish_reason.has_value(); }
};

}  // namespace pagemill::engine

#endif  // PAGEMILL_CC_ENGINE_REQUEST_OUTPUT_H_
