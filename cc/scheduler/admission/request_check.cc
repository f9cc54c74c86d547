#include "cc/scheduler/admission/request_check.h"

#include <algorithm>
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

RequestCheck::RequestCheck(const SchedulerOptions& options, const kv_cache::KvCacheManager& cache)
    : options_(options),
      uses_priority_((*MakePolicy(options.policy, options.tenant_weights))->uses_priority()),
      max_request_tokens_(FittingTokens(cache, options.max_model_len)) {}

Status RequestCheck::Check(const step::Request& request) const {
  PAGEMILL_RETURN_IF_ERROR(CheckKind(request));
  if (request.streaming_input) PAGEMILL_RETURN_IF_ERROR(CheckStreaming(request));
  if (request.prompt_token_ids.empty()) {
    return InvalidArgument("the prompt is empty; it must have at least one token");
  }
  PAGEMILL_RETURN_IF_ERROR(CheckTokens({request.prompt_token_ids, request.media}));
  if (!request.pooling) PAGEMILL_RETURN_IF_ERROR(request.sampling.Validate(options_.vocab_size));
  PAGEMILL_RETURN_IF_ERROR(
      CheckLength(request, static_cast<int64_t>(request.prompt_token_ids.size())));
  if (!request.media.empty()) PAGEMILL_RETURN_IF_ERROR(CheckMedia(request));
  return options_.chunked_prefill ? OkStatus() : CheckUncut(request);
}

Status RequestCheck::CheckChunk(const step::Request& request, const Chunk& chunk) const {
  PAGEMILL_RETURN_IF_ERROR(CheckTokens(chunk));
  PAGEMILL_RETURN_IF_ERROR(
      CheckLength(request, chunk.first_token + static_cast<int64_t>(chunk.token_ids.size())));
  return CheckItems(chunk, request.media.size());
}

Status RequestCheck::CheckKind(const step::Request& request) const {
  if (request.pooling && !options_.pooling && !options_.token_rows) {
    return InvalidArgument("this model generates text; it gives no embeddings");
  }
  if (!request.pooling && options_.pooling) {
    return InvalidArgument("this model gives embeddings; it does not generate text");
  }
  if (request.return_routed_experts && (options_.routed_experts_per_token == 0 || request.pooling)) {
    return InvalidArgument(
        "return_routed_experts is set, but this engine returns no experts: it needs a model that "
        "generates text and has experts, and --enable-return-routed-experts");
  }
  if (request.adapter != step::kNoAdapter && options_.max_adapters == 0) {
    return InvalidArgument("adapter is " + std::to_string(request.adapter.value()) +
                           ", but this engine runs the model without adapters (max_adapters is " +
                           Text(options_.max_adapters) + "): leave it at 0");
  }
  size_t num_bytes = 0;
  for (const auto& [key, value] : request.kv_transfer_params)
    num_bytes += key.size() + value.size();
  if (request.kv_transfer_params.size() > step::kMaxKvTransferParams ||
      num_bytes > step::kMaxKvTransferParamsBytes) {
    return InvalidArgument(
        "kv_transfer_params has " + Text(static_cast<int64_t>(request.kv_transfer_params.size())) +
        " entries of " + Text(static_cast<int64_t>(num_bytes)) + " bytes; it may have " +
        Text(step::kMaxKvTransferParams) + " of " + Text(step::kMaxKvTransferParamsBytes));
  }
  const auto prompt = static_cast<int64_t>(request.prompt_token_ids.size());
  if (request.second_text_start < 0 || request.second_text_start > prompt ||
      (request.second_text_start > 0 && !request.pooling)) {
    return InvalidArgument("second_text_start is " + Text(request.second_text_start) +
                           ", it must be 0, or in a pooling request a token of the prompt of " +
                           Text(prompt));
  }
  if (request.priority != 0 && !uses_priority_) {
    return InvalidArgument("priority is " + Text(request.priority) + ", but scheduling policy \"" +
                           options_.policy + "\" ignores it: leave it at 0");
  }
  return OkStatus();
}

Status RequestCheck::CheckStreaming(const step::Request& request) const {
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

Status RequestCheck::CheckTokens(const Chunk& chunk) const {
  for (size_t i = 0; i < chunk.token_ids.size(); ++i) {
    const int32_t token = chunk.token_ids[i];
    if (token < 0 || (options_.vocab_size > 0 && token >= options_.vocab_size)) {
      const std::string last =
          options_.vocab_size > 0 ? " to " + Text(options_.vocab_size - 1) : " upwards";
      return InvalidArgument("prompt token " + Text(chunk.first_token + static_cast<int64_t>(i)) +
                             " is " + Text(token) + ", it must be a token id from 0" + last);
    }
  }
  return OkStatus();
}

Status RequestCheck::CheckLength(const step::Request& request, int64_t prompt) const {
  const int64_t wanted = request.pooling ? 0 : request.sampling.max_tokens;
  // One token is enough to be worth starting: the rest ends with "length" when the context is
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

Status RequestCheck::CheckUncut(const step::Request& request) const {
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

Status RequestCheck::CheckMedia(const step::Request& request) const {
  PAGEMILL_RETURN_IF_ERROR(CheckItems({request.prompt_token_ids, request.media}, 0));
  const bool logprobs =
      !request.pooling && request.sampling.prompt_logprobs != step::SamplingParams::kNoLogprobs;
  int64_t total = 0;
  for (size_t i = 0; i < request.media.size(); ++i) {
    const int32_t size = request.media[i].num_tokens;
    if (!options_.chunked_media_input && logprobs && size > options_.max_num_logits_rows) {
      return InvalidArgument(
          "media item " + Text(static_cast<int64_t>(i)) + " has " + Text(size) +
          " tokens, and prompt_logprobs of an item that is not cut are given for at most " +
          Text(options_.max_num_logits_rows) + " (--max-num-logits-rows)");
    }
    total += size;
  }
  const int32_t most = std::min(options_.max_encoder_tokens, options_.EncoderCacheTokens());
  if (options_.chunked_prefill || total <= most) return OkStatus();
  return InvalidArgument("this model runs a prompt in one step, in which at most " + Text(most) +
                         " embeddings are made (max_encoder_tokens, encoder_cache_tokens), but "
                         "the media items have " +
                         Text(total) + ": send fewer or smaller ones");
}

Status RequestCheck::CheckItems(const Chunk& chunk, size_t num_items_before) const {
  if (!chunk.media.empty() && options_.max_encoder_tokens == 0) {
    return InvalidArgument(
        "this model takes no media (max_encoder_tokens is 0), but the request has " +
        Text(static_cast<int64_t>(num_items_before + chunk.media.size())) + " items");
  }
  const auto size = static_cast<int64_t>(chunk.token_ids.size());
  int64_t end = 0;
  for (size_t i = 0; i < chunk.media.size(); ++i) {
    const step::MediaItem& item = chunk.media[i];
    const std::string name = "media item " + Text(static_cast<int64_t>(num_items_before + i));
    if (item.first_token < end || item.num_tokens < 1 ||
        int64_t{item.first_token} + item.num_tokens > size) {
      return InvalidArgument(name + " has tokens " + Text(item.first_token) + " to " +
                             Text(int64_t{item.first_token} + item.num_tokens - 1) +
                             ", it must have at least one, behind those of the item before and "
                             "within the " +
                             (chunk.first_token == 0 ? "prompt" : "chunk") + " of " + Text(size));
    }
    PAGEMILL_RETURN_IF_ERROR(CheckMediaItem(item, name));
    end = int64_t{item.first_token} + item.num_tokens;
  }
  return OkStatus();
}

Status RequestCheck::CheckMediaItem(const step::MediaItem& item, const std::string& name) const {
  if (item.content_id.empty()) return InvalidArgument(name + " has an empty content_id");
  const Status fits = step::CheckFeatures(item, options_.media_formats);
  if (!fits.ok()) return {fits.code(), name + " " + fits.message()};
  const std::string size = name + " has " + Text(item.num_tokens) + " tokens, but ";
  if (item.num_tokens > options_.max_encoder_tokens) {
    return InvalidArgument(size + "at most " + Text(options_.max_encoder_tokens) +
                           " are encoded in a step (max_encoder_tokens): make it smaller");
  }
  if (item.num_tokens > options_.EncoderCacheTokens()) {
    return InvalidArgument(size + "the encoder cache holds " + Text(options_.EncoderCacheTokens()) +
                           " (encoder_cache_tokens): make it smaller");
  }
  if (!options_.chunked_media_input && item.num_tokens > options_.max_num_tokens) {
    return InvalidArgument(size + "a step has " + Text(options_.max_num_tokens) +
                           " and items are not cut (--max-num-batched-tokens, "
                           "chunked_media_input): make it smaller");
  }
  return OkStatus();
}

}  // namespace pagemill::scheduler
