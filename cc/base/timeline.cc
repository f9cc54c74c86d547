#include "cc/base/timeline.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>

namespace pagemill {
namespace {

constexpr std::array<std::string_view, 4> kTrackNames = {"steps", "model", "draft model",
                                                         "encoder"};

void AppendString(std::string_view text, std::string* json) {
  *json += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') *json += '\\';
    *json += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  *json += '"';
}

void AppendMember(std::string_view name, std::string_view value, std::string* json) {
  if (json->back() != '{') *json += ',';
  AppendString(name, json);
  *json += ':';
  *json += value;
}

// Microseconds with three digits, which the format wants.
std::string Micros(int64_t nanos) {
  char digits[48];
  std::snprintf(digits, sizeof digits, "%lld.%03d", static_cast<long long>(nanos / 1000),
                static_cast<int>(nanos % 1000));
  return digits;
}

// The name of a track, and its place in the picture.
std::string TrackJson(size_t track) {
  const std::string id = std::to_string(track + 1);
  std::string json = R"({"ph":"M","pid":1,"name":"thread_name","tid":)" + id;
  json += R"(,"args":{"name":)";
  AppendString(kTrackNames[track], &json);
  json += R"(}},{"ph":"M","pid":1,"name":"thread_sort_index","tid":)" + id;
  return json + R"(,"args":{"sort_index":)" + id + "}}";
}

}  // namespace

Status TimelineOptions::Validate() const {
  if (max_events < 1 || max_events > 10'000'000) {
    return InvalidArgument("max_events must be from 1 to 10000000, got " +
                           std::to_string(max_events));
  }
  if (max_steps < 0) {
    return InvalidArgument("max_steps must be at least 0, got " + std::to_string(max_steps));
  }
  if (max_seconds < 1 || max_seconds > 3600) {
    return InvalidArgument("max_seconds must be from 1 to 3600, got " +
                           std::to_string(max_seconds));
  }
  return OkStatus();
}

Timeline::Timeline(const TimelineOptions& options, const Clock* clock)
    : options_(options), clock_(clock), begin_ns_(clock->NowNanos()) {
  events_.reserve(static_cast<size_t>(options.max_events));
}

Timeline::LabelId Timeline::AddLabel(Track track, std::string name, Details details) {
  labels_.push_back({track, std::move(name), std::move(details)});
  return LabelId(static_cast<int32_t>(labels_.size() - 1));
}

bool Timeline::Exceeds(int64_t now_ns) const {
  return num_events() >= options_.max_events ||
         (options_.max_steps > 0 && num_steps_ > options_.max_steps) ||
         now_ns - begin_ns_ > options_.max_seconds * 1'000'000'000;
}

void Timeline::Add(LabelId label, int64_t begin_ns, const IntervalCounts& counts) {
  const int64_t now = Now();
  full_ = full_ || Exceeds(now);
  if (!full_) events_.push_back({label, begin_ns, now, counts});
}

std::string Timeline::ToJson(const Event& event) const {
  const Label& label = labels_[static_cast<size_t>(event.label.value())];
  std::string json = R"({"ph":"X","pid":1,"tid":)";
  json += std::to_string(static_cast<size_t>(label.track) + 1);
  json += R"(,"ts":)" + Micros(event.begin_ns - begin_ns_);
  json += R"(,"dur":)" + Micros(event.end_ns - event.begin_ns);
  json += R"(,"name":)";
  AppendString(label.name, &json);
  json += R"(,"args":{)";
  const auto& [requests, tokens] = event.counts;
  if (requests >= 0) AppendMember("requests", std::to_string(requests), &json);
  if (tokens >= 0) AppendMember("tokens", std::to_string(tokens), &json);
  for (const auto& [name, value] : label.details) {
    std::string quoted;
    AppendString(value, &quoted);
    AppendMember(name, quoted, &json);
  }
  return json + "}}";
}

Status Timeline::WriteChromeTrace(const std::string& path) const {
  std::FILE* const file = std::fopen(path.c_str(), "w");
  if (file == nullptr) {
    return InvalidArgument("cannot write " + path + ": " + std::strerror(errno));
  }
  const auto write = [file](const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), file);
  };
  write(R"({"displayTimeUnit":"ms","otherData":{"ended_by":")");
  write(full_ ? "bound" : "caller");
  write(R"("},"traceEvents":[)");
  write(R"({"ph":"M","pid":1,"name":"process_name","args":{"name":"pagemill engine"}})");
  for (size_t track = 0; track < kTrackNames.size(); ++track) write(",\n" + TrackJson(track));
  for (const Event& event : events_) write(",\n" + ToJson(event));
  write("\n]}\n");
  const bool failed = std::ferror(file) != 0;
  if (std::fclose(file) == 0 && !failed) return OkStatus();
  return InvalidArgument("cannot write " + path + ": the disk may be full");
}

}  // namespace pagemill
