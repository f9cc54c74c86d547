#include "cc/comm/tcp/tcp_group.h"

#include <algorithm>
#include <cstring>

#include "cc/comm/reduction.h"
#include "cc/comm/tcp/tcp_world.h"

namespace pagemill::comm {
namespace {

using Kind = Collective::Kind;

// Large enough that a piece takes longer than its trip; bounds the memory for those of the others.
constexpr int64_t kPieceBytes = 1 << 20;

std::span<const std::byte> Bytes(const std::byte* data, int64_t size) {
  return {data, static_cast<size_t>(size)};
}
std::span<std::byte> Bytes(std::byte* data, int64_t size) {
  return {data, static_cast<size_t>(size)};
}

// Of `count` elements or bytes, those from `begin` on, at most `most`.
int64_t PieceOf(int64_t count, int64_t begin, int64_t most) {
  return std::clamp<int64_t>(count - begin, 0, most);
}

}  // namespace

TcpGroup::TcpGroup(TcpWorld* world, Axis axis, const std::vector<int32_t>& members)
    : Group(static_cast<int32_t>(std::ranges::find(members, world->rank()) - members.begin()),
            static_cast<int32_t>(members.size())),
      world_(world),
      axis_(axis),
      members_(members) {}

const Status& TcpGroup::status() const { return world_->status(); }

void TcpGroup::Leave() { world_->Leave(); }

Status TcpGroup::Run(const Collective& call) {
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

CallFingerprint TcpGroup::Word(const Collective& call) {
  ++calls_;
  return CallFingerprint(call.kind)
      .Add(static_cast<int64_t>(axis_))
      .Add(static_cast<int64_t>(calls_))
      .Add(static_cast<int64_t>(call.dtype));
}

Status TcpGroup::ExchangePiece(uint64_t word, bool is_first,
                               const std::function<std::span<const std::byte>(size_t)>& out,
                               const std::function<std::span<std::byte>(size_t)>& in) {
  out_.clear();
  in_.clear();
  for (size_t r = 0; r < members_.size(); ++r) {
    if (r == static_cast<size_t>(rank())) continue;
    const std::span<const std::byte> given = out(r);
    const std::span<std::byte> taken = in(r);
    if (is_first || !given.empty()) {
      out_.push_back({.rank = members_[r], .call = word, .data = given});
    }
    if (is_first || !taken.empty()) {
      in_.push_back({.rank = members_[r], .call = word, .data = taken});
    }
  }
  return world_->Exchange(out_, in_);
}

std::byte* TcpGroup::Scratch(size_t r, int64_t bytes) {
  const size_t stride = static_cast<size_t>((bytes + 63) / 64 * 64);  // parts stay aligned
  if (scratch_.size() < stride * members_.size()) scratch_.resize(stride * members_.size());
  return scratch_.data() + stride * r;
}

Status TcpGroup::RunAllReduce(const Collective& call) {
  const uint64_t word = Word(call).Add(call.count).value();
  const auto self = static_cast<size_t>(rank());
  const int64_t element = RowBytes(call.dtype, 1), most = kPieceBytes / element;
  const std::byte* parts[kMaxRanks];
  const std::span<const std::byte*> of_ranks(parts, members_.size());
  for (int64_t begin = 0; begin == 0 || begin < call.count; begin += most) {
    const int64_t size = PieceOf(call.count, begin, most), bytes = size * element;
    const std::byte* mine = call.in + begin * element;
    PAGEMILL_RETURN_IF_ERROR(ExchangePiece(
        word, begin == 0, [&](size_t) { return Bytes(mine, bytes); },
        [&](size_t r) { return Bytes(Scratch(r, bytes), bytes); }));
    for (size_t r = 0; r < of_ranks.size(); ++r) {
      of_ranks[r] = r == self ? mine : Scratch(r, bytes);
    }
    SumInOrder(call.dtype, of_ranks, call.out + begin * element, size);
  }
  return OkStatus();
}

Status TcpGroup::RunReduceScatter(const Collective& call) {
  const uint64_t word = Word(call).Add(call.counts).value();
  const auto self = static_cast<size_t>(rank());
  const int64_t element = RowBytes(call.dtype, 1), most = kPieceBytes / element;
  const int64_t longest = *std::ranges::max_element(call.counts);
  const std::byte* parts[kMaxRanks];
  const std::span<const std::byte*> of_ranks(parts, members_.size());
  // Piece of the elements that are for member r.
  const auto part_of = [&](size_t r, int64_t begin) {
    const int64_t size = PieceOf(call.counts[r], begin, most);
    const int64_t first = SumOf(call.counts.first(r)) + std::min(begin, call.counts[r]);
    return Bytes(call.in + first * element, size * element);
  };
  for (int64_t begin = 0; begin == 0 || begin < longest; begin += most) {
    const int64_t size = PieceOf(call.counts[self], begin, most), bytes = size * element;
    PAGEMILL_RETURN_IF_ERROR(ExchangePiece(
        word, begin == 0, [&](size_t r) { return part_of(r, begin); },
        [&](size_t r) { return Bytes(Scratch(r, bytes), bytes); }));
    if (size == 0) continue;
    for (size_t r = 0; r < of_ranks.size(); ++r) {
      of_ranks[r] = r == self ? part_of(self, begin).data() : Scratch(r, bytes);
    }
    SumInOrder(call.dtype, of_ranks, call.out + begin * element, size);
  }
  return OkStatus();
}

Status TcpGroup::RunAllGather(const Collective& call) {
  const uint64_t word = Word(call).Add(call.count).Add(call.counts).value();
  const std::span<const int64_t> widths = call.counts;
  const auto self = static_cast<size_t>(rank());
  const int64_t stride = SumOf(widths), longest = call.count * *std::ranges::max_element(widths);
  for (int64_t begin = 0; begin == 0 || begin < longest; begin += kPieceBytes) {
    const auto size_of = [&](size_t r) {
      return PieceOf(call.count * widths[r], begin, kPieceBytes);
    };
    const int64_t most = PieceOf(longest, begin, kPieceBytes);
    const std::byte* mine = call.in + std::min(begin, call.count * widths[self]);
    PAGEMILL_RETURN_IF_ERROR(ExchangePiece(
        word, begin == 0, [&](size_t) { return Bytes(mine, size_of(self)); },
        [&](size_t r) { return Bytes(Scratch(r, most), size_of(r)); }));
    int64_t column = 0;
    for (size_t r = 0; r < widths.size(); ++r) {
      const std::byte* data = r == self ? mine : Scratch(r, most);
      ScatterRows(data, begin, begin + size_of(r), widths[r], call.out + column, stride);
      column += widths[r];
    }
  }
  return OkStatus();
}

Status TcpGroup::RunAllToAll(const Collective& call) {
  const uint64_t word = Word(call).value();
  const auto self = static_cast<size_t>(rank());
  const auto out = [&](size_t r) {
    return Bytes(call.in + SumOf(call.counts.first(r)), call.counts[r]);
  };
  const auto in = [&](size_t r) {
    return Bytes(call.out + SumOf(call.out_counts.first(r)), call.out_counts[r]);
  };
  PAGEMILL_RETURN_IF_ERROR(ExchangePiece(word, /*is_first=*/true, out, in));
  std::ranges::copy(out(self), in(self).begin());
  return OkStatus();
}

Status TcpGroup::RunBroadcast(const Collective& call) {
  const uint64_t word = Word(call).Add(call.count).Add(call.peer).value();
  if (rank() != call.peer) {
    const Links::Incoming in = {.rank = members_[static_cast<size_t>(call.peer)],
                                .call = word,
                                .data = Bytes(call.out, call.count)};
    return world_->Exchange({}, {&in, 1});
  }
  out_.clear();
  for (size_t r = 0; r < members_.size(); ++r) {
    if (r == static_cast<size_t>(rank())) continue;
    out_.push_back({.rank = members_[r], .call = word, .data = Bytes(call.in, call.count)});
  }
  return world_->Exchange(out_, {});
}

// Ranks outside the pair make no call, so that calls are not counted.
Status TcpGroup::RunSend(const Collective& call) {
  const uint64_t word = CallFingerprint(Kind::kSend).Add(static_cast<int64_t>(axis_)).value();
  const Links::Outgoing out = {.rank = members_[static_cast<size_t>(call.peer)],
                               .call = word,
                               .data = Bytes(call.in, call.count)};
  return world_->Exchange({&out, 1}, {});
}

Status TcpGroup::RunReceive(const Collective& call) {
  const uint64_t word = CallFingerprint(Kind::kSend).Add(static_cast<int64_t>(axis_)).value();
  const Links::Incoming in = {.rank = members_[static_cast<size_t>(call.peer)],
                              .call = word,
                              .data = Bytes(call.out, call.count)};
  return world_->Exchange({}, {&in, 1});
}

}  // namespace pagemill::comm
