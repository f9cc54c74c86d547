#include "cc/step/text_codec.h"

#include <optional>
#include <utility>
#include <vector>

#include "cc/step/internal/text_fields.h"

namespace pagemill::step {
namespace {

using internal::AppendHex;
using internal::AppendNumber;
using internal::CutAt;
using internal::FieldReader;
using internal::FieldWriter;
using internal::ParseHex;
using internal::ParseNumber;

using IdAndFloat = std::pair<int32_t, float>;

void AppendPair(const IdAndFloat& pair, std::string* out) {
  AppendNumber(pair.first, out);
  *out += ':';
  AppendNumber(pair.second, out);
}

bool ParsePair(std::string_view item, IdAndFloat* pair) {
  return ParseNumber(CutAt(':', &item), &pair->first) && ParseNumber(item, &pair->second);
}

// token:logprob:rank, then /token:logprob for each alternative.
void AppendLogprobs(const TokenLogprobs& entry, std::string* out) {
  AppendPair({entry.token_id, entry.logprob}, out);
  *out += ':';
  AppendNumber(entry.rank, out);
  for (const IdAndFloat& alternative : entry.top) {
    *out += '/';
    AppendPair(alternative, out);
  }
}

bool ParseLogprobs(std::string_view item, TokenLogprobs* entry) {
  std::string_view head = CutAt('/', &item);
  if (!ParseNumber(CutAt(':', &head), &entry->token_id)) return false;
  if (!ParseNumber(CutAt(':', &head), &entry->logprob)) return false;
  if (!ParseNumber(head, &entry->rank)) return false;
  while (!item.empty()) {
    if (!ParsePair(CutAt('/', &item), &entry->top.emplace_back())) return false;
  }
  return true;
}

// first:count:content id in hex
void AppendMedia(const MediaItem& item, std::string* out) {
  AppendNumber(item.first_token, out);
  *out += ':';
  AppendNumber(item.num_tokens, out);
  *out += ':';
  AppendHex(item.content_id, out);
}

bool ParseMedia(std::string_view text, MediaItem* item) {
  return ParseNumber(CutAt(':', &text), &item->first_token) &&
         ParseNumber(CutAt(':', &text), &item->num_tokens) && ParseHex(text, &item->content_id);
}

// A time, or "-" for none.
void AppendTime(const std::optional<int64_t>& time_us, std::string* out) {
  if (time_us) {
    AppendNumber(*time_us, out);
  } else {
    *out += '-';
  }
}

bool ParseTime(std::string_view text, std::optional<int64_t>* time_us) {
  if (text == "-") return true;
  return ParseNumber(text, &time_us->emplace());
}

void AppendIndex(RequestIndex index, std::string* out) { AppendNumber(index.value(), out); }

void AppendEntry(const ScheduledRequest& entry, std::string* out) {
  *out += "run";
  FieldWriter fields(out);
  fields.Number("slot", entry.index.value());
  if (entry.start != nullptr) {
    fields.Number("start", entry.start->id.value());
    fields.Numbers("resumed", entry.resumed_output_token_ids);
  }
  fields.Number("computed", entry.num_computed_tokens);
  fields.Numbers("tokens", entry.token_ids);
  fields.Numbers("drafts", entry.draft_token_ids);
  fields.Numbers("encode", entry.media_to_encode);
  for (const std::vector<BlockId>& group : entry.new_block_ids) {
    fields.List("blocks", group,
                [](BlockId id, std::string* text) { AppendNumber(id.value(), text); });
  }
  fields.Number("sample", int32_t{entry.sample});
  fields.Number("prompt_logprobs", int32_t{entry.prompt_logprobs});
  *out += '\n';
}

void AppendAnswer(const RequestResult& answer, std::string* out) {
  *out += "answer";
  FieldWriter fields(out);
  fields.Number("slot", answer.index.value());
  fields.Numbers("sampled", answer.sampled_token_ids);
  fields.Numbers("drafts", answer.draft_token_ids);
  fields.List("logprobs", answer.logprobs, AppendLogprobs);
  fields.List("prompt_logprobs", answer.prompt_logprobs, AppendLogprobs);
  fields.List("pooled", answer.pooled, [](float v, std::string* text) { AppendNumber(v, text); });
  fields.Number("failure", static_cast<int32_t>(answer.failure.code()));
  fields.Bytes("message", answer.failure.message());
  *out += '\n';
}

bool ParseAnswer(std::string_view line, RequestResult* answer) {
  FieldReader fields(line);
  int32_t slot = 0, code = 0;
  std::string message;
  fields.Word("answer");
  fields.Number("slot", &slot);
  fields.Numbers("sampled", &answer->sampled_token_ids);
  fields.Numbers("drafts", &answer->draft_token_ids);
  fields.List("logprobs", &answer->logprobs, ParseLogprobs);
  fields.List("prompt_logprobs", &answer->prompt_logprobs, ParseLogprobs);
  fields.Numbers("pooled", &answer->pooled);
  fields.Number("failure", &code);
  fields.Bytes("message", &message);
  answer->index = RequestIndex(slot);
  answer->failure = Status(static_cast<StatusCode>(code), std::move(message));
  return fields.ok() && fields.AtEnd() && code >= 0 &&
         code <= static_cast<int32_t>(StatusCode::kDataLoss);
}

}  // namespace

std::string ToText(const Request& request) {
  const SamplingParams& p = request.sampling;
  std::string text = "request";
  FieldWriter fields(&text);
  fields.Number("id", request.id.value());
  fields.Numbers("prompt", request.prompt_token_ids);
  fields.Number("pooling", int32_t{request.pooling.has_value()});
  fields.Number("priority", request.priority);
  fields.Bytes("tenant", request.tenant);
  fields.Number("adapter", request.adapter.value());
  fields.List("media", request.media, AppendMedia);
  fields.Number("starts_held", int32_t{request.starts_held});
  fields.Number("streaming_input", int32_t{request.streaming_input});
  fields.List("deadlines_us", std::vector{request.start_deadline_us, request.deadline_us},
              AppendTime);
  fields.Bytes("salt", request.cache_salt);
  fields.Number("skip_reading_prefix_cache", int32_t{request.skip_reading_prefix_cache});
  fields.Number("temperature", p.temperature);
  fields.Number("top_k", p.top_k);
  fields.Number("top_p", p.top_p);
  fields.Number("min_p", p.min_p);
  fields.Number("presence_penalty", p.presence_penalty);
  fields.Number("frequency_penalty", p.frequency_penalty);
  fields.Number("repetition_penalty", p.repetition_penalty);
  fields.List("logit_bias", p.logit_bias, AppendPair);
  fields.Number("seed", p.seed);
  fields.Number("max_tokens", p.max_tokens);
  fields.Number("min_tokens", p.min_tokens);
  fields.Number("ignore_eos", int32_t{p.ignore_eos});
  fields.Numbers("eos", p.eos_token_ids);
  fields.Numbers("stop", p.stop_token_ids);
  fields.Number("logprobs", p.logprobs);
  fields.Number("prompt_logprobs", p.prompt_logprobs);
  return text;
}

StatusOr<Request> ParseRequest(std::string_view text) {
  Request request;
  SamplingParams& p = request.sampling;
  FieldReader fields(text);
  uint64_t id = 0;
  bool pooling = false;
  uint64_t adapter = 0;
  std::vector<std::optional<int64_t>> deadlines_us;
  fields.Word("request");
  fields.Number("id", &id);
  fields.Numbers("prompt", &request.prompt_token_ids);
  fields.Flag("pooling", &pooling);
  fields.Number("priority", &request.priority);
  fields.Bytes("tenant", &request.tenant);
  fields.Number("adapter", &adapter);
  fields.List("media", &request.media, ParseMedia);
  fields.Flag("starts_held", &request.starts_held);
  fields.Flag("streaming_input", &request.streaming_input);
  fields.List("deadlines_us", &deadlines_us, ParseTime);
  fields.Bytes("salt", &request.cache_salt);
  fields.Flag("skip_reading_prefix_cache", &request.skip_reading_prefix_cache);
  fields.Number("temperature", &p.temperature);
  fields.Number("top_k", &p.top_k);
  fields.Number("top_p", &p.top_p);
  fields.Number("min_p", &p.min_p);
  fields.Number("presence_penalty", &p.presence_penalty);
  fields.Number("frequency_penalty", &p.frequency_penalty);
  fields.Number("repetition_penalty", &p.repetition_penalty);
  fields.List("logit_bias", &p.logit_bias, ParsePair);
  fields.Number("seed", &p.seed);
  fields.Number("max_tokens", &p.max_tokens);
  fields.Number("min_tokens", &p.min_tokens);
  fields.Flag("ignore_eos", &p.ignore_eos);
  fields.Numbers("eos", &p.eos_token_ids);
  fields.Numbers("stop", &p.stop_token_ids);
  fields.Number("logprobs", &p.logprobs);
  fields.Number("prompt_logprobs", &p.prompt_logprobs);
  if (!fields.ok() || !fields.AtEnd() || deadlines_us.size() != 2) {
    return DataLoss("not a request: " + std::string(text));
  }
  request.id = RequestId(id);
  request.adapter = AdapterId(adapter);
  request.start_deadline_us = deadlines_us[0];
  request.deadline_us = deadlines_us[1];
  if (pooling) request.pooling.emplace();
  return request;
}

std::string ToText(const StepPlan& plan) {
  std::string text = "plan";
  FieldWriter fields(&text);
  fields.Number("step", plan.step_id);
  fields.Number("total", plan.total_num_tokens);
  fields.List("released", plan.released, AppendIndex);
  fields.List("released_media", plan.released_media, AppendHex);
  fields.Numbers("common_prefix", plan.num_common_prefix_blocks);
  text += '\n';
  for (const ScheduledRequest& entry : plan.scheduled) AppendEntry(entry, &text);
  return text;
}

std::string ToText(const StepResult& result) {
  std::string text = "result";
  FieldWriter fields(&text);
  fields.Number("step", result.step_id);
  text += '\n';
  for (const RequestResult& answer : result.results) AppendAnswer(answer, &text);
  return text;
}

StatusOr<StepResult> ParseStepResult(std::string_view text) {
  StepResult result;
  FieldReader head(CutAt('\n', &text));
  head.Word("result");
  head.Number("step", &result.step_id);
  if (!head.ok() || !head.AtEnd()) return DataLoss("not the head of a result");
  while (!text.empty()) {
    const std::string_view line = CutAt('\n', &text);
    if (!ParseAnswer(line, &result.results.emplace_back())) {
      return DataLoss("not an entry of a result: " + std::string(line));
    }
  }
  return result;
}

}  // namespace pagemill::step
