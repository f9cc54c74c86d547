#include "cc/sim/synthetic_workload.h"

#include <algorithm>
#include <string>
#include <utility>

namespace pagemill::sim {
namespace {

enum Stream : uint64_t { kArrivalStream, kLengthStream, kThinkStream, kContentStream };

Status CheckRange(const char* field, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return OkStatus();
  return InvalidArgument(std::string(field) + " is " + std::to_string(value) +
                         ", it must be from " + std::to_string(low) + " to " +
                         std::to_string(high));
}

}  // namespace

Status SyntheticOptions::Validate() const {
  PAGEMILL_RETURN_IF_ERROR(CheckRange("num_requests", num_requests, 1, int64_t{1} << 40));
  PAGEMILL_RETURN_IF_ERROR(CheckRange("vocab_size", vocab_size, 1, 1 << 24));
  PAGEMILL_RETURN_IF_ERROR(CheckRange("concurrency", concurrency, 0, 1 << 24));
  PAGEMILL_RETURN_IF_ERROR(CheckRange("num_prefixes", num_prefixes, 1, 1 << 24));
  PAGEMILL_RETURN_IF_ERROR(CheckRange("prefix_tokens", prefix_tokens, 0, 1 << 24));
  PAGEMILL_RETURN_IF_ERROR(CheckRange("mean_turns", mean_turns, 1, 10000));
  PAGEMILL_RETURN_IF_ERROR(CheckRange("mean_think_ns", mean_think_ns, 0, int64_t{1} << 50));
  PAGEMILL_RETURN_IF_ERROR(CheckRange("max_context_tokens", max_context_tokens, 2, 1 << 24));
  if (prefix_tokens > max_context_tokens - 2) {
    return InvalidArgument("prefix_tokens is " + std::to_string(prefix_tokens) +
                           ", which leaves no room in max_context_tokens, " +
                           std::to_string(max_context_tokens));
  }
  PAGEMILL_RETURN_IF_ERROR(arrivals.Validate());
  PAGEMILL_RETURN_IF_ERROR(prompt.Validate("prompt"));
  return output.Validate("output");
}

SyntheticWorkload::SyntheticWorkload(const SyntheticOptions& options)
    : options_(options),
      arrivals_(options.arrivals),
      prompt_lengths_(options.prompt),
      output_lengths_(options.output),
      arrival_random_(options.seed, kArrivalStream),
      length_random_(options.seed, kLengthStream),
      think_random_(options.seed, kThinkStream) {
  for (int32_t i = 0; i < options.concurrency; ++i) Begin(0);
  if (options.concurrency == 0) next_arrival_ns_ = arrivals_.NextGap(&arrival_random_);
}

Segment SyntheticWorkload::NewContent(int32_t num_tokens) {
  const uint64_t stream = Mix(options_.seed) ^ Mix(kContentStream);
  return {Mix(stream + ++num_contents_), num_tokens, 0};
}

void SyntheticWorkload::Begin(int64_t time_ns) {
  Conversation conversation;
  if (options_.prefix_tokens > 0) {
    const uint64_t prefix = length_random_.Below(static_cast<uint64_t>(options_.num_prefixes));
    conversation.history.push_back({Mix(Mix(~options_.seed) + prefix), options_.prefix_tokens, 0});
    conversation.num_tokens = options_.prefix_tokens;
  }
  conversation.turns_left = 1;
  while (length_random_.Below(static_cast<uint64_t>(options_.mean_turns)) != 0) {
    ++conversation.turns_left;
  }
  conversations_.emplace(++num_conversations_, std::move(conversation));
  turns_.push({time_ns, num_conversations_});
}

std::optional<int64_t> SyntheticWorkload::NextTime() const {
  if (!left()) return std::nullopt;
  const bool open = options_.concurrency == 0;
  if (turns_.empty()) return open ? std::optional(next_arrival_ns_) : std::nullopt;
  return open ? std::min(next_arrival_ns_, turns_.top().time_ns) : turns_.top().time_ns;
}

Arrival SyntheticWorkload::Take() {
  if (options_.concurrency == 0 && (turns_.empty() || next_arrival_ns_ <= turns_.top().time_ns)) {
    Begin(next_arrival_ns_);
    next_arrival_ns_ += arrivals_.NextGap(&arrival_random_);
  }
  const Turn turn = turns_.top();
  turns_.pop();
  ++num_taken_;
  Conversation& conversation = conversations_.at(turn.conversation);

  const int32_t room = options_.max_context_tokens - conversation.num_tokens;  // at least 2
  const int32_t prompt_size = std::min(prompt_lengths_.Draw(&length_random_), room - 1);
  const int32_t output_size = std::min(output_lengths_.Draw(&length_random_), room - prompt_size);
  conversation.history.push_back(NewContent(prompt_size));

  Arrival arrival;
  arrival.time_ns = turn.time_ns;
  arrival.ticket = turn.conversation;
  arrival.prompt.reserve(static_cast<size_t>(conversation.num_tokens + prompt_size));
  for (const Segment& segment : conversation.history) {
    AppendTokens(segment, options_.vocab_size, &arrival.prompt);
  }
  arrival.output = {NewContent(output_size)};
  arrival.num_output_tokens = output_size;
  conversation.history.push_back(arrival.output.front());
  conversation.num_tokens += prompt_size + output_size;
  --conversation.turns_left;
  return arrival;
}

void SyntheticWorkload::Finish(uint64_t ticket, int64_t now_ns) {
  const auto found = conversations_.find(ticket);
  const int64_t next = now_ns + think_random_.Exponential(options_.mean_think_ns);
  if (found->second.turns_left > 0 && found->second.num_tokens <= options_.max_context_tokens - 2) {
    turns_.push({next, ticket});
    return;
  }
  conversations_.erase(found);
  if (options_.concurrency > 0) Begin(next);
}

}  // namespace pagemill::sim
