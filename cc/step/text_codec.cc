#include "cc/step/text_codec.h"

#include <array>
#include <optional>
#include <span>
#include <type_traits>
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

template <typename T>
void WriteFields(const T& value, FieldWriter* fields);
template <typename T>
void ReadFields(FieldReader* fields, T* value);

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

// key:value, both in hex
using TransferParam = std::pair<std::string, std::string>;

void AppendParam(const KvTransferParams::value_type& param, std::string* out) {
  AppendHex(param.first, out);
  *out += ':';
  AppendHex(param.second, out);
}

bool ParseParam(std::string_view text, TransferParam* param) {
  return ParseHex(CutAt(':', &text), &param->first) && ParseHex(text, &param->second);
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

// One field of each type that a request has.
template <typename T>
void WriteField(const char* name, const T& value, FieldWriter* fields) {
  if constexpr (requires { T::Visit([](auto&&...) {}); }) {
    WriteFields(value, fields);
  } else if constexpr (std::is_same_v<T, bool>) {
    fields->Number(name, int32_t{value});
  } else if constexpr (std::is_same_v<T, std::string>) {
    fields->Bytes(name, value);
  } else if constexpr (std::is_convertible_v<T, std::span<const int32_t>>) {
    fields->Numbers(name, value);
  } else if constexpr (std::is_same_v<T, std::vector<IdAndFloat>>) {
    fields->List(name, value, AppendPair);
  } else if constexpr (std::is_same_v<T, GrowingList<MediaItem>>) {
    fields->List(name, value, AppendMedia);
  } else if constexpr (std::is_same_v<T, KvTransferParams>) {
    if (!value.empty()) fields->List(name, value, AppendParam);
  } else if constexpr (std::is_same_v<T, std::optional<int64_t>>) {
    fields->List(name, std::array{value}, AppendTime);
  } else if constexpr (std::is_same_v<T, std::optional<PoolingParams>>) {
    fields->Number(name, int32_t{value.has_value()});
  } else if constexpr (requires { typename T::ValueType; }) {
    fields->Number(name, value.value());
  } else {
    fields->Number(name, value);
  }
}

template <typename T>
void ReadField(FieldReader* fields, const char* name, T* value) {
  if constexpr (requires { T::Visit([](auto&&...) {}); }) {
    ReadFields(fields, value);
  } else if constexpr (std::is_same_v<T, bool>) {
    fields->Flag(name, value);
  } else if constexpr (std::is_same_v<T, std::string>) {
    fields->Bytes(name, value);
  } else if constexpr (std::is_same_v<T, std::vector<int32_t>>) {
    fields->Numbers(name, value);
  } else if constexpr (std::is_same_v<T, std::vector<IdAndFloat>>) {
    fields->List(name, value, ParsePair);
  } else if constexpr (std::is_same_v<T, GrowingList<int32_t>>) {
    std::vector<int32_t> items;
    fields->Numbers(name, &items);
    *value = std::move(items);
  } else if constexpr (std::is_same_v<T, GrowingList<MediaItem>>) {
    std::vector<MediaItem> items;
    fields->List(name, &items, ParseMedia);
    *value = std::move(items);
  } else if constexpr (std::is_same_v<T, KvTransferParams>) {
    std::vector<TransferParam> items;
    if (!fields->IsNext(name)) return;
    fields->List(name, &items, ParseParam);
    value->insert(items.begin(), items.end());
    fields->Check(!items.empty() && value->size() == items.size());
  } else if constexpr (std::is_same_v<T, std::optional<int64_t>>) {
    std::vector<T> times;
    fields->List(name, &times, ParseTime);
    fields->Check(times.size() == 1);
    if (fields->ok()) *value = times[0];
  } else if constexpr (std::is_same_v<T, std::optional<PoolingParams>>) {
    bool is_set = false;
    fields->Flag(name, &is_set);
    if (is_set) value->emplace();
  } else if constexpr (requires { typename T::ValueType; }) {
    typename T::ValueType number{};
    fields->Number(name, &number);
    *value = T(number);
  } else {
    fields->Number(name, value);
  }
}

template <typename T>
void WriteFields(const T& value, FieldWriter* fields) {
  T::Visit([&](const char* name, auto member, const FieldInfo&) {
    WriteField(name, value.*member, fields);
  });
}

template <typename T>
void ReadFields(FieldReader* fields, T* value) {
  T::Visit([&](const char* name, auto member, const FieldInfo&) {
    ReadField(fields, name, &(value->*member));
  });
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
  if (entry.has_new_blocks()) {
    for (const std::vector<BlockId>& group : entry.new_block_ids) {
      fields.List("blocks", group,
                  [](BlockId id, std::string* text) { AppendNumber(id.value(), text); });
    }
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
  if (answer.num_missing_drafts != 0) fields.Number("missing_drafts", answer.num_missing_drafts);
  fields.List("logprobs", answer.logprobs, AppendLogprobs);
  fields.List("prompt_logprobs", answer.prompt_logprobs, AppendLogprobs);
  fields.List("pooled", answer.pooled, [](float v, std::string* text) { AppendNumber(v, text); });
  if (!answer.routed_experts.empty()) {
    fields.List("experts", answer.routed_experts,
                [](uint16_t v, std::string* text) { AppendNumber(v, text); });
  }
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
  std::vector<int32_t> sampled;
  fields.Numbers("sampled", &sampled);
  answer->sampled_token_ids = sampled;
  fields.Numbers("drafts", &answer->draft_token_ids);
  if (fields.IsNext("missing_drafts")) {
    fields.Number("missing_drafts", &answer->num_missing_drafts);
    fields.Check(answer->num_missing_drafts != 0);
  }
  fields.List("logprobs", &answer->logprobs, ParseLogprobs);
  fields.List("prompt_logprobs", &answer->prompt_logprobs, ParseLogprobs);
  fields.Numbers("pooled", &answer->pooled);
  if (fields.IsNext("experts")) {
    fields.Numbers("experts", &answer->routed_experts);
    fields.Check(!answer->routed_experts.empty());
  }
  fields.Number("failure", &code);
  fields.Bytes("message", &message);
  answer->index = RequestIndex(slot);
  answer->failure = Status(static_cast<StatusCode>(code), std::move(message));
  return fields.ok() && fields.AtEnd() && code >= 0 &&
         code <= static_cast<int32_t>(StatusCode::kDataLoss);
}

}  // namespace

std::string ToText(const Request& request) {
  std::string text = "request";
  FieldWriter fields(&text);
  WriteFields(request, &fields);
  return text;
}

StatusOr<Request> ParseRequest(std::string_view text) {
  Request request;
  FieldReader fields(text);
  fields.Word("request");
  ReadFields(&fields, &request);
  if (!fields.ok() || !fields.AtEnd()) return DataLoss("not a request: " + std::string(text));
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
