#include "cc/capi/output_view.h"

#include <cstdint>

namespace pagemill::capi {

OutputView::OutputView(engine::RequestOutput output)
    : output_(std::move(output)),
      logprobs_(Convert(output_.logprobs)),
      prompt_logprobs_(Convert(output_.prompt_logprobs)) {
  for (const auto& [key, value] : output_.kv_transfer_params) {
    kv_transfer_params_.push_back({key.c_str(), value.c_str()});
  }
}

OutputView::Logprobs OutputView::Convert(
    const std::optional<std::vector<step::TokenLogprobs>>& from) {
  Logprobs to;
  if (!from) return to;
  size_t num_top = 0;
  for (const step::TokenLogprobs& entry : *from) num_top += entry.top.size();
  to.top.reserve(num_top);  // so that entries keep their place
  to.entries.reserve(from->size());
  for (const step::TokenLogprobs& entry : *from) {
    const size_t first = to.top.size();
    for (const auto& [token_id, logprob] : entry.top) to.top.push_back({token_id, logprob});
    to.entries.push_back({.token_id = entry.token_id,
                          .logprob = entry.logprob,
                          .rank = entry.rank,
                          .num_top = static_cast<int32_t>(entry.top.size()),
                          .top = to.top.data() + first});
  }
  return to;
}

pagemill_output OutputView::ToC() const {
  const auto reason = [](const std::optional<step::FinishReason>& given) {
    return given ? static_cast<int32_t>(*given) + 1 : int32_t{PAGEMILL_NOT_FINISHED};
  };
  return {
      .struct_size = sizeof(pagemill_output),
      .request_id = output_.request_id.value(),
      .token_ids = output_.new_token_ids.data(),
      .num_tokens = output_.new_token_ids.size(),
      .finish_reason = reason(output_.finish_reason),
      .num_cached_tokens = output_.num_cached_tokens,
      .error = static_cast<int32_t>(output_.error.code()),
      .stop_token_id = output_.stop_token_id.value_or(-1),
      .error_message = output_.error.message().c_str(),
      .queued_s = output_.queued_s,
      .prefill_s = output_.prefill_s,
      .decode_s = output_.decode_s,
      .turn_finished = reason(output_.turn_finished),
      .retry_after_s = output_.error.retry_after_s(),
      .logprobs = logprobs_.entries.data(),
      .num_logprobs = logprobs_.entries.size(),
      .prompt_logprobs = prompt_logprobs_.entries.data(),
      .num_prompt_logprobs = prompt_logprobs_.entries.size(),
      .pooled = output_.pooled ? output_.pooled->data() : nullptr,
      .num_pooled = output_.pooled ? output_.pooled->size() : 0,
      .kv_transfer_params = kv_transfer_params_.data(),
      .num_kv_transfer_params = kv_transfer_params_.size(),
  };
}

}  // namespace pagemill::capi
