#include "cc/comm/channel.h"

#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "cc/comm/futex.h"
#include "cc/device/spin_until.h"

// How it works. A rank that sends data for piece p writes it to its slot p % 2, then raises `begun`
// to p with release order; a rank that receives it waits, with acquire order, for `begun` >= p, so
// it sees the data.
//
// Writing slot p % 2 again for piece p + 2 must not overtake a reader of piece p.
//
// Among all members, `begun` >= p + 1 of a rank means that it has finished reading piece p (its
// reads come before its release), so before piece p + 2 a rank ensures that all have begun p + 1.
// After a call in which it waited for all, this already holds: one wait per piece. After a
// broadcast, which waits only for the root, it may have to wait here.
//
// Between a sender and a receiver, the receiver raises `begun` to p after it has read piece p, so
// before piece p + 2 the sender ensures p: two pieces can be in flight.
//
// The fingerprint of a call is written before `begun` and kept for two pieces like the data, so it
// is read under the same rule. Calls that move nothing have no piece; they change the number of
// calls, which is part of the next fingerprint.
//
// Sleeping is Dekker's pattern, hence sequentially consistent: a sleeper raises `sleepers`, then
// reads `begun`; a rank raises `begun`, then reads `sleepers`.
namespace pagemill::comm {
namespace {

// Interval at which a sleeper checks that its peers are alive.
constexpr std::chrono::milliseconds kLivenessInterval{20};

}  // namespace

Channel::Channel(SharedMemoryWorld* world, std::vector<Member> members, size_t self)
    : world_(world),
      members_(std::move(members)),
      self_(self),
      slot_bytes_(world->segment().slot_bytes()),
      piece_(members_[self].lane->begun.load()) {}  // the segment has the initial numbers

void Channel::StartCall(uint64_t fingerprint) {
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;  // 2^64 / the golden ratio: spreads small numbers
  call_word_ = fingerprint ^ (++calls_ * kOdd);
}

Status Channel::NextPiece() {
  for (size_t m = 0; m < members_.size(); ++m) {
    if (m != self_) PAGEMILL_RETURN_IF_ERROR(Await(m, piece_));
  }
  ++piece_;
  return OkStatus();
}

void Channel::Begin() {
  Lane& mine = *members_[self_].lane;
  mine.call[piece_ & 1] = call_word_;
  mine.begun.store(piece_);
  if (mine.sleepers.load() > 0) FutexWakeAll(&mine.begun);
}

Status Channel::AwaitData(size_t member) {
  if (member == self_) return OkStatus();
  PAGEMILL_RETURN_IF_ERROR(Await(member, piece_));
  if (members_[member].lane->call[piece_ & 1] == call_word_) return OkStatus();
  return world_->Fail(Internal("rank " + std::to_string(members_[member].rank) +
                               " makes another call than rank " + std::to_string(world_->rank()) +
                               " as piece " + std::to_string(piece_) +
                               ": their programs or batches differ"));
}

Status Channel::Post(std::span<const std::byte> data) {
  PAGEMILL_RETURN_IF_ERROR(Await(other(), piece_ - 1));
  ++piece_;
  std::memcpy(slot(self_), data.data(), data.size());
  Begin();
  return OkStatus();
}

Status Channel::Take(std::span<std::byte> data) {
  ++piece_;
  PAGEMILL_RETURN_IF_ERROR(AwaitData(other()));
  std::memcpy(data.data(), slot(other()), data.size());
  Begin();
  return OkStatus();
}

bool Channel::HasBegun(size_t member, uint32_t piece) const {
  // Differences of counters that wrap: ranks are never 2^31 pieces apart.
  const uint32_t begun = members_[member].lane->begun.load(std::memory_order_acquire);
  return static_cast<int32_t>(begun - piece) >= 0;
}

Status Channel::Await(size_t member, uint32_t piece) {
  if (device::SpinUntil(world_->spin(), [&] { return HasBegun(member, piece); })) {
    return OkStatus();
  }
  Lane& lane = *members_[member].lane;
  lane.sleepers.fetch_add(1);
  Status status = Sleep(member, piece);
  lane.sleepers.fetch_sub(1);
  return status;
}

Status Channel::Sleep(size_t member, uint32_t piece) {
  std::atomic<uint32_t>& begun = members_[member].lane->begun;
  while (true) {
    const uint32_t seen = begun.load();
    if (static_cast<int32_t>(seen - piece) >= 0) return OkStatus();
    FutexWait(&begun, seen, kLivenessInterval);
    // In this order, because a peer may begin the piece and then leave.
    const std::optional<int32_t> gone = world_->FindGone();
    if (HasBegun(member, piece)) return OkStatus();
    if (!gone) continue;
    const int32_t process_id = world_->segment().state(*gone).process_id;
    return world_->Fail(Unavailable("rank " + std::to_string(*gone) + " of " +
                                    std::to_string(world_->num_ranks()) + " (process " +
                                    std::to_string(process_id) + ") has died or left the group"));
  }
}

void Channel::WakePeers() { FutexWakeAll(&members_[self_].lane->begun); }

void Channel::CheckIntegrity() const {
  PAGEMILL_CHECK(members_[self_].lane->begun.load() == piece_);
  for (const Member& member : members_) {
    // Waits keep every member within two pieces of the others.
    PAGEMILL_CHECK(static_cast<int32_t>(member.lane->begun.load() - piece_) >= -2);
  }
}

}  // namespace pagemill::comm
