#include "cc/runner/ranks/rank_control.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cc/runner/ranks/step_message.h"

namespace pagemill::runner {
namespace {

using engine::KvMemory;
using engine::NewWeights;
using engine::WeightSources;

// A message: its kind, the call, what becomes of the KV or where new weights are, and for each rank
// the bytes of its sources, which follow for an update, to each rank its own.
enum class Call : int32_t { kSleep = 1, kWake, kUpdate };
constexpr size_t kCall = 1, kChoice = 2, kSourceBytes = 3;
constexpr size_t kMaxSourceBytes = size_t{1} << 30;
static_assert(kSourceBytes + comm::kMaxRanks <= kFirstPiece);

// How a call went on a rank, as ranks exchange it. Longer messages are cut.
struct Outcome {
  int32_t code = 0;
  std::array<char, 508> message{};  // ends at the first 0, or at its end
};

// The beginning of a UTF-8 text, in whole characters.
std::string_view Cut(std::string_view text, size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  size_t end = max_bytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end);
}

// The name and the text of each source, each with a zero byte behind it.
std::string SerializeSources(const WeightSources& sources) {
  std::string bytes;
  for (const auto& [name, text] : sources) bytes.append(name).append(1, '\0').append(text) += '\0';
  return bytes;
}

WeightSources ParseSources(std::string_view bytes) {
  WeightSources sources;
  const auto take = [&bytes] {
    const std::string_view part = bytes.substr(0, bytes.find('\0'));
    bytes.remove_prefix(std::min(part.size() + 1, bytes.size()));
    return std::string(part);
  };
  while (!bytes.empty()) {
    std::string name = take();
    sources[std::move(name)] = take();
  }
  return sources;
}

// The sources of each rank, by names without a rank.
StatusOr<std::vector<WeightSources>> SplitByRank(const WeightSources& sources, int32_t num_ranks) {
  std::vector<WeightSources> ranks(static_cast<size_t>(num_ranks));
  for (const auto& [name, text] : sources) {
    size_t rank = 0;
    const size_t slash = name.find('/');
    if (slash != std::string::npos) {
      const char* const end = name.data() + slash;
      const auto [stop, error] = std::from_chars(name.data(), end, rank);
      if (error != std::errc() || stop != end || rank >= ranks.size()) {
        return InvalidArgument("'" + name + "' is of no rank: there are " +
                               std::to_string(num_ranks) + ", named 0/, 1/ and so on");
      }
    }
    if ((name + text).find('\0') != std::string::npos) {
      return InvalidArgument("the program '" + name + "' has a zero byte");
    }
    ranks[rank][slash == std::string::npos ? name : name.substr(slash + 1)] = text;
  }
  return ranks;
}

Status Send(comm::Group& group, Call call, int32_t choice, std::span<const std::string> sources) {
  std::vector<int32_t> message(kFirstPiece);
  message[0] = static_cast<int32_t>(MessageKind::kControl);
  message[kCall] = static_cast<int32_t>(call);
  message[kChoice] = choice;
  for (size_t r = 0; r < sources.size(); ++r) {
    message[kSourceBytes + r] = static_cast<int32_t>(sources[r].size());
  }
  PAGEMILL_RETURN_IF_ERROR(group.Broadcast(std::as_writable_bytes(std::span(message)), /*root=*/0));
  PAGEMILL_RETURN_IF_ERROR(group.Broadcast({}, /*root=*/0));  // nothing behind the first piece
  for (size_t r = 1; r < sources.size(); ++r) {
    PAGEMILL_RETURN_IF_ERROR(
        group.Send(std::as_bytes(std::span(sources[r])), static_cast<int32_t>(r)));
  }
  return OkStatus();
}

}  // namespace

// OK if `own` is OK on every rank.
Status ControlledRank::Agree(const Status& own) {
  const auto num_ranks = static_cast<size_t>(group_->num_ranks());
  Outcome outcome = {.code = static_cast<int32_t>(own.code())};
  const std::string_view sent = Cut(own.message(), outcome.message.size());
  std::copy(sent.begin(), sent.end(), outcome.message.begin());
  std::vector<Outcome> all(num_ranks);
  const std::vector<int64_t> widths(num_ranks, sizeof(Outcome));
  PAGEMILL_RETURN_IF_ERROR(group_->AllGather(&outcome, all.data(), /*rows=*/1, widths));
  for (size_t r = 0; r < num_ranks; ++r) {
    if (all[r].code == 0) continue;
    if (r == static_cast<size_t>(group_->rank())) return own;
    const auto end = std::find(all[r].message.begin(), all[r].message.end(), '\0');
    const std::string message(all[r].message.begin(), end);
    const std::string of =
        r == 0 ? "" : "rank " + std::to_string(r) + " of " + std::to_string(num_ranks) + ": ";
    return Status(static_cast<StatusCode>(all[r].code), of + message);
  }
  return OkStatus();
}

// The outcome of a call of all ranks; if it failed on one, those on which it did not undo it.
Status ControlledRank::Settle(const Status& own, const std::function<Status()>& undo) {
  const Status all = Agree(own);
  if (all.ok()) return all;
  const Status undone = Agree(own.ok() ? undo() : OkStatus());
  if (undone.ok()) return all;
  group_->Leave();  // ranks differ now
  return undone;
}

Status ControlledRank::Sleep(KvMemory kv) {
  const bool was_awake = !asleep_;
  PAGEMILL_RETURN_IF_ERROR(
      Settle(own_->Sleep(kv), [&] { return was_awake ? own_->Wake() : OkStatus(); }));
  if (was_awake || kv == KvMemory::kFree) asleep_ = kv;
  return OkStatus();
}

Status ControlledRank::Wake() {
  const KvMemory kv = asleep_.value_or(KvMemory::kKeep);
  PAGEMILL_RETURN_IF_ERROR(Settle(own_->Wake(), [&] { return own_->Sleep(kv); }));
  asleep_.reset();
  return OkStatus();
}

Status ControlledRank::UpdateWeights(const WeightSources& sources, NewWeights where,
                                     const std::function<Status()>& commit) {
  std::optional<Status> decided;  // by all ranks
  const auto meet = [&]() -> Status {
    decided = Agree(OkStatus());
    if (decided->ok()) decided = Agree(commit());
    return *decided;
  };
  const Status own = own_->UpdateWeights(sources, where, meet);
  if (!decided) decided = Agree(own);  // it failed before its commit
  if (!decided->ok()) return *decided;
  // From here on only a device can have failed, whose rank sleeps.
  const Status taken = Settle(own, [this] { return own_->Sleep(KvMemory::kKeep); });
  if (!taken.ok() && !asleep_) asleep_ = KvMemory::kKeep;
  return taken;
}

Status LeadingControl::Sleep(KvMemory kv) {
  PAGEMILL_RETURN_IF_ERROR(Send(*group_, Call::kSleep, static_cast<int32_t>(kv), {}));
  return rank_.Sleep(kv);
}

Status LeadingControl::Wake() {
  PAGEMILL_RETURN_IF_ERROR(Send(*group_, Call::kWake, 0, {}));
  return rank_.Wake();
}

Status LeadingControl::UpdateWeights(const WeightSources& sources, NewWeights where,
                                     const std::function<Status()>& commit) {
  PAGEMILL_ASSIGN_OR_RETURN(const std::vector<WeightSources> ranks,
                            SplitByRank(sources, group_->num_ranks()));
  std::vector<std::string> bytes;
  for (const WeightSources& each : ranks) {
    bytes.push_back(SerializeSources(each));
    if (bytes.back().size() > kMaxSourceBytes) {
      return ResourceExhausted("the programs of a rank have more than 1 GiB");
    }
  }
  PAGEMILL_RETURN_IF_ERROR(Send(*group_, Call::kUpdate, static_cast<int32_t>(where), bytes));
  return rank_.UpdateWeights(ranks.front(), where, commit);
}

Status FollowControl(std::span<const int32_t> message, comm::Group& group, ControlledRank* rank) {
  // What failed on all ranks alike has been reported by rank 0.
  const auto if_ended = [&group](const Status& status) {
    return group.status().ok() ? OkStatus() : status;
  };
  switch (static_cast<Call>(message[kCall])) {
    case Call::kSleep:
      return if_ended(rank->Sleep(static_cast<KvMemory>(message[kChoice])));
    case Call::kWake:
      return if_ended(rank->Wake());
    case Call::kUpdate: {
      const auto size =
          static_cast<size_t>(message[kSourceBytes + static_cast<size_t>(group.rank())]);
      if (size > kMaxSourceBytes) return Internal("programs of more than 1 GiB: the ranks differ");
      std::string bytes(size, '\0');
      PAGEMILL_RETURN_IF_ERROR(group.Receive(std::as_writable_bytes(std::span(bytes)), /*from=*/0));
      return if_ended(rank->UpdateWeights(ParseSources(bytes),
                                          static_cast<NewWeights>(message[kChoice]), OkStatus));
    }
  }
  return Internal("a call of no known kind");
}

}  // namespace pagemill::runner
