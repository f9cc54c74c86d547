#include "cc/scheduler/admission/admission.h"

#include <string>

#include "cc/scheduler/policies/policies.h"

namespace pagemill::scheduler {
namespace {

std::string Text(int64_t n) { return std::to_string(n); }

// The largest number of tokens, up to `limit`, whose blocks fit in the pool.
int32_t FittingTokens(const kv_cache::KvCacheManager& cache, int32_t limit) {
  int32_t fits = 0, too_many = limit + 1;
  while (fits + 1 < too_many) {
    const int32_t middle = fits + (too_many - fits) / 2;
    (cache.NumBlocks(middle) <= cache.num_request_blocks() ? fits : too_many) = middle;
  }
  return fits;
}

}  // namespace

Admission::Admission(const SchedulerOptions& options, const kv_cache::KvCacheManager& cache)
    : options_(options),
      uses_priority_((*MakePolicy(options.policy, options.tenant_weights))->uses_priority()),
      max_request_tokens_(FittingTokens(cache, options.max_model_len)) {}

Status Admission::Check(const step::Request& request) const {
  PM_RETURN_IF_ERROR(CheckKind(request));
  if (request.streaming_input) PM_RETURN_IF_ERROR(CheckStreaming(request));
  PM_RETURN_IF_ERROR(CheckTokens(request));
  if (!request.pooling) PM_RETURN_IF_ERROR(request.sampling.Validate(options_.vocab_size));
  PM_RETURN_IF_ERROR(CheckLength(request));
  return options_.chunked_prefill ? OkStatus() : CheckUncut(request);
}

Status Admission::CheckKind(const step::Request& request) const {
  if (request.pooling && !options_.pooling) {
    return InvalidArgument("this model generates text; it gives no embeddings");
  }
  if (!request.pooling && options_.pooling) {
    return InvalidArgument("this model gives embeddings; it does not generate text");
  }
  if (request.priority != 0 && !uses_priority_) {
    return InvalidArgument("priority is " + Text(request.priority) + ", but scheduling policy \"" +
                           options_.policy + "\" ignores it: leave it at 0");
  }
  return OkStatus();
}

Status Admission::CheckStreaming(const step::Request& request) const {
  const step::SamplingParams& sampling = request.sampling;
  if (request.pooling || sampling.max_tokens == 0 ||
      sampling.prompt_logprobs != step::SamplingParams::kNoLogprobs) {
    return InvalidArgument(
        "streaming_input is set: it goes with generated tokens only, not with pooling, "
        "prompt_logprobs or max_tokens = 0");
  }
  if (!options_.chunked_prefill) {
    return InvalidArgument("this model runs a prompt in one step: leave streaming_input unset");
  }
  return OkStatus();
}

Status Admission::CheckTokens(const step::Request& request) const {
  const std::vector<int32_t>& prompt = request.prompt_token_ids;
  if (prompt.empty())
    return InvalidArgument("the prompt is empty; it must have at least one token");
  for (size_t i = 0; i < prompt.size(); ++i) {
    if (prompt[i] < 0 || (options_.vocab_size > 0 && prompt[i] >= options_.vocab_size)) {
      const std::string last =
          options_.vocab_size > 0 ? " to " + Text(options_.vocab_size - 1) : " upwards";
      return InvalidArgument("prompt token " + Text(static_cast<int64_t>(i)) + " is " +
                             Text(prompt[i]) + ", it must be a token id from 0" + last);
    }
  }
  return OkStatus();
}

Status Admission::CheckLength(const step::Request& request) const {
  const auto prompt = static_cast<int64_t>(request.prompt_token_ids.size());
  const int64_t wanted = request.pooling ? 0 : request.sampling.max_tokens;
  // One token is enough to be worth starting: the rest ends with "length" where the context is
  // full.
  const int64_t least = prompt + (wanted > 0 ? 1 : 0);
  if (least <= max_request_tokens_) return OkStatus();
  if (least > options_.max_model_len) {
    std::string sentence = "this model's maximum context length is " +
                           Text(options_.max_model_len) + " tokens (--max-model-len), but ";
    if (wanted == 0) {
      sentence += "the prompt has " + Text(prompt) + ": shorten it";
    } else {
      sentence += "the request needs " + Text(prompt + wanted) + " (" + Text(prompt) +
                  " in the prompt, " + Text(wanted) + " for the completion): shorten the prompt";
    }
    return InvalidArgument(sentence);
  }
  return InvalidArgument("the whole KV cache holds " + Text(max_request_tokens_) +
                         " tokens, but the prompt alone has " + Text(prompt) +
                         ": shorten it, or raise --kv-cache-memory-bytes");
}

Status Admission::CheckUncut(const step::Request& request) const {
  const auto prompt = static_cast<int64_t>(request.prompt_token_ids.size());
  if (prompt > options_.max_num_tokens) {
    return InvalidArgument(
        "this model runs a prompt in one step of at most " + Text(options_.max_num_tokens) +
        " tokens (--max-num-batched-tokens), but the prompt has " + Text(prompt) + ": shorten it");
  }
  const bool logprobs =
      !request.pooling && request.sampling.prompt_logprobs != step::SamplingParams::kNoLogprobs;
  if (logprobs && prompt > options_.max_num_logits_rows) {
    return InvalidArgument("this model gives prompt_logprobs for at most " +
                           Text(options_.max_num_logits_rows) +
                           " prompt tokens (--max-num-logits-rows), but the prompt has " +
                           Text(prompt) + ": shorten it");
  }
  return OkStatus();
}

}  // namespace pagemill::scheduler
