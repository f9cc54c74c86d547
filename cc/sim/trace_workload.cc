#include "cc/sim/trace_workload.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <unordered_map>

namespace pagemill::sim {
namespace {

int64_t NumTokens(const std::vector<Segment>& content) {
  int64_t total = 0;
  for (const Segment& segment : content) total += segment.num_tokens;
  return total;
}

Status CheckRequest(const TraceRequest& request, size_t number) {
  const std::string name = "trace request " + std::to_string(number);
  if (request.num_prompt_tokens < 1 || request.num_output_tokens < 1) {
    return InvalidArgument(name + " has " + std::to_string(request.num_prompt_tokens) +
                           " prompt and " + std::to_string(request.num_output_tokens) +
                           " output tokens, it must have at least one of each");
  }
  const int64_t end = int64_t{request.num_prompt_tokens} + request.num_output_tokens;
  if (end > INT32_MAX || NumTokens(request.content) > INT32_MAX) {
    return InvalidArgument(name + " has " + std::to_string(end) + " tokens, and content for " +
                           std::to_string(NumTokens(request.content)) + "; at most " +
                           std::to_string(INT32_MAX) + " can be replayed");
  }
  const bool negative = std::any_of(request.content.begin(), request.content.end(),
                                    [](const Segment& segment) { return segment.num_tokens < 0; });
  if (negative || NumTokens(request.content) < request.num_prompt_tokens) {
    return InvalidArgument(name + " has content for " + std::to_string(NumTokens(request.content)) +
                           " tokens, less than its " + std::to_string(request.num_prompt_tokens) +
                           " prompt tokens");
  }
  return OkStatus();
}

// Appends the tokens [begin, end) of `content`, as far as they exist, to `out`; returns their
// number.
int32_t Slice(const std::vector<Segment>& content, int32_t begin, int32_t end,
              std::vector<Segment>* out) {
  int32_t at = 0, count = 0;
  for (const Segment& segment : content) {
    const int32_t from = std::max(begin, at), to = std::min(end, at + segment.num_tokens);
    if (from < to) {
      out->push_back({segment.content, to - from, segment.first + from - at});
      count += to - from;
    }
    at += segment.num_tokens;
  }
  return count;
}

}  // namespace

StatusOr<std::unique_ptr<TraceWorkload>> TraceWorkload::Create(std::vector<TraceRequest> trace,
                                                               const TraceOptions& options) {
  if (options.vocab_size < 1 || options.concurrency < 0 || options.think_ns < 0) {
    return InvalidArgument("vocab_size must be positive; concurrency and think_ns not negative");
  }
  for (size_t i = 0; i < trace.size(); ++i) {
    PAGEMILL_RETURN_IF_ERROR(CheckRequest(trace[i], i));
    if (trace[i].time_ns < (i == 0 ? 0 : trace[i - 1].time_ns)) {
      return InvalidArgument("trace request " + std::to_string(i) + " is at " +
                             std::to_string(trace[i].time_ns) +
                             " ns, before the one before it or below 0");
    }
  }
  return std::unique_ptr<TraceWorkload>(new TraceWorkload(std::move(trace), options));
}

TraceWorkload::TraceWorkload(std::vector<TraceRequest> trace, const TraceOptions& options)
    : trace_(std::move(trace)), options_(options), next_in_session_(trace_.size()) {
  std::unordered_map<uint64_t, size_t> last;
  for (size_t i = 0; i < trace_.size(); ++i) {
    next_in_session_[i] = i;
    const uint64_t session = trace_[i].session;
    const auto found = session == 0 ? last.end() : last.find(session);
    if (found == last.end()) {
      first_of_session_.push_back(i);
    } else {
      next_in_session_[found->second] = i;
    }
    if (session != 0) last[session] = i;
  }
  const size_t at_once = options.concurrency == 0 ? first_of_session_.size()
                                                  : static_cast<size_t>(options.concurrency);
  for (size_t i = 0; i < at_once; ++i) BeginSession(0);
}

void TraceWorkload::BeginSession(int64_t now_ns) {
  if (num_begun_ == first_of_session_.size()) return;
  const size_t first = first_of_session_[num_begun_++];
  ready_.push({options_.concurrency == 0 ? trace_[first].time_ns : now_ns, first});
}

std::optional<int64_t> TraceWorkload::NextTime() const {
  if (ready_.empty()) return std::nullopt;
  return ready_.top().first;
}

Arrival TraceWorkload::Take() {
  const auto [time_ns, number] = ready_.top();
  ready_.pop();
  const TraceRequest& request = trace_[number];
  Arrival arrival;
  arrival.time_ns = time_ns;
  arrival.ticket = number;
  std::vector<Segment> prompt;
  Slice(request.content, 0, request.num_prompt_tokens, &prompt);
  for (const Segment& segment : prompt) {
    AppendTokens(segment, options_.vocab_size, &arrival.prompt);
  }
  arrival.num_output_tokens = request.num_output_tokens;
  const int32_t end = request.num_prompt_tokens + request.num_output_tokens;
  const int32_t known = Slice(request.content, request.num_prompt_tokens, end, &arrival.output);
  if (known < request.num_output_tokens) {
    arrival.output.push_back(
        {Mix(~static_cast<uint64_t>(number)), request.num_output_tokens - known, 0});
  }
  return arrival;
}

void TraceWorkload::Finish(uint64_t ticket, int64_t now_ns) {
  const size_t next = next_in_session_[ticket];
  if (next == ticket) {
    if (options_.concurrency > 0) BeginSession(now_ns);
    return;
  }
  const int64_t earliest = now_ns + options_.think_ns;
  ready_.push(
      {options_.concurrency > 0 ? earliest : std::max(earliest, trace_[next].time_ns), next});
}

}  // namespace pagemill::sim
