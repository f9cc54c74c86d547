#include "cc/comm/shared_memory_group.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "cc/comm/call_parts.h"
#include "cc/comm/reduction.h"

namespace pagemill::comm {
namespace {

using Kind = Collective::Kind;

Channel ChannelOfAll(SharedMemoryWorld* world, Axis axis, const std::vector<int32_t>& ranks,
                     size_t self) {
  std::vector<Channel::Member> members;
  for (int32_t rank : ranks) {
    members.push_back({.rank = rank,
                       .lane = &world->segment().lane(rank, axis, LaneIndex::All()),
                       .slots = world->segment().slots(rank, axis, LaneIndex::All())});
  }
  return Channel(world, std::move(members), self);
}

// The channel from member `from` of the group to member `to`, one of which is this rank.
Channel ChannelOfPair(SharedMemoryWorld* world, Axis axis, const std::vector<int32_t>& ranks,
                      size_t from, size_t to) {
  const SharedSegment& segment = world->segment();
  const LaneIndex out = LaneIndex::To(static_cast<int32_t>(to));
  const LaneIndex in =
      LaneIndex::From(static_cast<int32_t>(from), static_cast<int32_t>(ranks.size()));
  return Channel(world,
                 {{.rank = ranks[from],
                   .lane = &segment.lane(ranks[from], axis, out),
                   .slots = segment.slots(ranks[from], axis, out)},
                  {.rank = ranks[to], .lane = &segment.lane(ranks[to], axis, in)}},
                 ranks[from] == world->rank() ? 0 : 1);
}

size_t IndexOf(const std::vector<int32_t>& ranks, int32_t rank) {
  return static_cast<size_t>(std::ranges::find(ranks, rank) - ranks.begin());
}

}  // namespace

SharedMemoryGroup::SharedMemoryGroup(SharedMemoryWorld* world, Axis axis)
    : SharedMemoryGroup(world, axis, world->segment().topology().Members(axis, world->rank())) {}

SharedMemoryGroup::SharedMemoryGroup(SharedMemoryWorld* world, Axis axis,
                                     const std::vector<int32_t>& ranks)
    : Group(static_cast<int32_t>(IndexOf(ranks, world->rank())),
            static_cast<int32_t>(ranks.size())),
      world_(world),
      slot_bytes_(world->segment().slot_bytes()),
      all_(ChannelOfAll(world, axis, ranks, static_cast<size_t>(rank()))) {
  const auto self = static_cast<size_t>(rank());
  for (size_t peer = 0; peer < ranks.size(); ++peer) {
    to_.push_back(ChannelOfPair(world, axis, ranks, self, peer));
    from_.push_back(ChannelOfPair(world, axis, ranks, peer, self));
  }
}

Status SharedMemoryGroup::Run(const Collective& call) {
  switch (call.kind) {
    case Kind::kAllReduce:
      return RunAllReduce(call);
    case Kind::kReduceScatter:
      return RunReduceScatter(call);
    case Kind::kAllGather:
      return RunAllGather(call);
    case Kind::kAllToAll:
      return RunAllToAll(call);
    case Kind::kBroadcast:
      return RunBroadcast(call);
    case Kind::kSend:
      return RunSend(call);
    case Kind::kReceive:
      return RunReceive(call);
  }
  return Internal("a call of no known kind");
}

Status SharedMemoryGroup::GatherParts(const std::byte* in, int64_t bytes,
                                      std::span<const std::byte*> parts) {
  const auto self = static_cast<size_t>(rank());
  PAGEMILL_RETURN_IF_ERROR(all_.NextPiece());
  std::memcpy(all_.slot(self), in, static_cast<size_t>(bytes));
  all_.Begin();
  for (size_t r = 0; r < parts.size(); ++r) {
    PAGEMILL_RETURN_IF_ERROR(all_.AwaitData(r));
    parts[r] = r == self ? in : all_.slot(r);
  }
  return OkStatus();
}

Status SharedMemoryGroup::RunAllReduce(const Collective& call) {
  all_.StartCall(
      CallFingerprint(call.kind).Add(static_cast<int64_t>(call.dtype)).Add(call.count).value());
  const int64_t element = RowBytes(call.dtype, 1), slot = slot_bytes_ / element;
  const std::byte* parts[kMaxRanks];
  const std::span<const std::byte*> of_ranks(parts, static_cast<size_t>(num_ranks()));
  for (int64_t begin = 0; begin < call.count; begin += slot) {
    const int64_t size = std::min(slot, call.count - begin);
    PAGEMILL_RETURN_IF_ERROR(GatherParts(call.in + begin * element, size * element, of_ranks));
    SumInOrder(call.dtype, of_ranks, call.out + begin * element, size);
  }
  return OkStatus();
}

Status SharedMemoryGroup::RunReduceScatter(const Collective& call) {
  all_.StartCall(
      CallFingerprint(call.kind).Add(static_cast<int64_t>(call.dtype)).Add(call.counts).value());
  const int64_t element = RowBytes(call.dtype, 1), slot = slot_bytes_ / element;
  const auto self = static_cast<size_t>(rank());
  const int64_t first = SumOf(call.counts.first(self)), last = first + call.counts[self];
  const int64_t total = SumOf(call.counts);
  const std::byte* parts[kMaxRanks];
  const std::span<const std::byte*> of_ranks(parts, static_cast<size_t>(num_ranks()));
  for (int64_t begin = 0; begin < total; begin += slot) {
    const int64_t size = std::min(slot, total - begin);
    PAGEMILL_RETURN_IF_ERROR(GatherParts(call.in + begin * element, size * element, of_ranks));
    const int64_t from = std::max(begin, first), to = std::min(begin + size, last);
    if (from >= to) continue;
    for (const std::byte*& part : of_ranks) part += (from - begin) * element;
    SumInOrder(call.dtype, of_ranks, call.out + (from - first) * element, to - from);
  }
  return OkStatus();
}

Status SharedMemoryGroup::RunAllGather(const Collective& call) {
  all_.StartCall(CallFingerprint(call.kind).Add(call.count).Add(call.counts).value());
  const std::span<const int64_t> widths = call.counts;
  const auto self = static_cast<size_t>(rank());
  const int64_t stride = SumOf(widths), longest = call.count * *std::ranges::max_element(widths);
  for (int64_t begin = 0; begin < longest; begin += slot_bytes_) {
    const auto end_of = [&](size_t r) {
      return std::min(call.count * widths[r], begin + slot_bytes_);
    };
    PAGEMILL_RETURN_IF_ERROR(all_.NextPiece());
    if (begin < end_of(self)) {
      std::memcpy(all_.slot(self), call.in + begin, static_cast<size_t>(end_of(self) - begin));
    }
    all_.Begin();
    int64_t column = 0;
    for (size_t r = 0; r < widths.size(); ++r) {
      PAGEMILL_RETURN_IF_ERROR(all_.AwaitData(r));
      const std::byte* data = r == self ? call.in + begin : all_.slot(r);
      ScatterRows(data, begin, end_of(r), widths[r], call.out + column, stride);
      column += widths[r];
    }
  }
  return OkStatus();
}

// In rounds: a rank posts a piece to each rank, then takes one from each. It cannot deadlock: a
// post in round k waits only for others to take what it posted in round k - 2, and a take in round
// k only for what others post in round k.
//
// A piece without data tells peers that wait in a call of all ranks that this one makes another
// call.
Status SharedMemoryGroup::RunAllToAll(const Collective& call) {
  const auto self = static_cast<size_t>(rank()), ranks = static_cast<size_t>(num_ranks());
  all_.StartCall(CallFingerprint(call.kind).value());
  PAGEMILL_RETURN_IF_ERROR(all_.NextPiece());
  all_.Begin();
  int64_t longest = 0;
  for (size_t r = 0; r < ranks; ++r) {
    if (r == self) continue;
    to_[r].StartCall(CallFingerprint(call.kind).Add(call.counts[r]).value());
    from_[r].StartCall(CallFingerprint(call.kind).Add(call.out_counts[r]).value());
    longest = std::max({longest, call.counts[r], call.out_counts[r]});
  }
  if (call.counts[self] > 0) {
    std::memcpy(call.out + SumOf(call.out_counts.first(self)),
                call.in + SumOf(call.counts.first(self)), static_cast<size_t>(call.counts[self]));
  }
  for (int64_t begin = 0; begin < longest; begin += slot_bytes_) {
    const auto size = [&](int64_t bytes) {
      return static_cast<size_t>(std::clamp<int64_t>(bytes - begin, 0, slot_bytes_));
    };
    int64_t offset = begin;
    for (size_t r = 0; r < ranks; offset += call.counts[r], ++r) {
      const size_t bytes = size(call.counts[r]);
      if (r != self && bytes > 0) PAGEMILL_RETURN_IF_ERROR(to_[r].Post({call.in + offset, bytes}));
    }
    offset = begin;
    for (size_t r = 0; r < ranks; offset += call.out_counts[r], ++r) {
      const size_t bytes = size(call.out_counts[r]);
      if (r != self && bytes > 0)
        PAGEMILL_RETURN_IF_ERROR(from_[r].Take({call.out + offset, bytes}));
    }
  }
  return OkStatus();
}

Status SharedMemoryGroup::RunBroadcast(const Collective& call) {
  all_.StartCall(CallFingerprint(call.kind).Add(call.count).Add(call.peer).value());
  const auto self = static_cast<size_t>(rank()), root = static_cast<size_t>(call.peer);
  for (int64_t begin = 0; begin < call.count; begin += slot_bytes_) {
    const auto bytes = static_cast<size_t>(std::min(slot_bytes_, call.count - begin));
    PAGEMILL_RETURN_IF_ERROR(all_.NextPiece());
    if (self == root) std::memcpy(all_.slot(self), call.in + begin, bytes);
    all_.Begin();
    if (self == root) continue;
    PAGEMILL_RETURN_IF_ERROR(all_.AwaitData(root));
    std::memcpy(call.out + begin, all_.slot(root), bytes);
  }
  return OkStatus();
}

Status SharedMemoryGroup::RunSend(const Collective& call) {
  Channel& channel = to_[static_cast<size_t>(call.peer)];
  channel.StartCall(CallFingerprint(Kind::kSend).Add(call.count).value());
  for (int64_t begin = 0; begin < call.count; begin += slot_bytes_) {
    const auto bytes = static_cast<size_t>(std::min(slot_bytes_, call.count - begin));
    PAGEMILL_RETURN_IF_ERROR(channel.Post({call.in + begin, bytes}));
  }
  return OkStatus();
}

Status SharedMemoryGroup::RunReceive(const Collective& call) {
  Channel& channel = from_[static_cast<size_t>(call.peer)];
  channel.StartCall(CallFingerprint(Kind::kSend).Add(call.count).value());
  for (int64_t begin = 0; begin < call.count; begin += slot_bytes_) {
    const auto bytes = static_cast<size_t>(std::min(slot_bytes_, call.count - begin));
    PAGEMILL_RETURN_IF_ERROR(channel.Take({call.out + begin, bytes}));
  }
  return OkStatus();
}

void SharedMemoryGroup::WakePeers() {
  all_.WakePeers();
  for (std::vector<Channel>* pairs : {&to_, &from_}) {
    for (Channel& pair : *pairs) pair.WakePeers();
  }
}

void SharedMemoryGroup::CheckIntegrity() const {
  all_.CheckIntegrity();
  for (const std::vector<Channel>* pairs : {&to_, &from_}) {
    for (const Channel& pair : *pairs) pair.CheckIntegrity();
  }
}

}  // namespace pagemill::comm
