// File: cc/comm/channel.h
// Transfers pieces of data between ranks that make the same calls, through their lanes and slots in
// a shared segment. A call is divided into pieces of at most a slot; all members number pieces
// alike.
//
// All members of a group, each of which may send data and receive that of others:
//
//   channel.StartCall(fingerprint);
//   for each piece:
//     PAGEMILL_RETURN_IF_ERROR(channel.NextPiece());
//     memcpy(channel.slot(self), ...);
//     channel.Begin();
//     for each member of interest:
//       PAGEMILL_RETURN_IF_ERROR(channel.AwaitData(member));
//       Use(channel.slot(member));
//
// One sender and one receiver:
//
//   channel.StartCall(fingerprint);
//   for each piece: PAGEMILL_RETURN_IF_ERROR(channel.Post(data));      // the sender
//   for each piece: PAGEMILL_RETURN_IF_ERROR(channel.Take(data));      // the receiver
//
// channel.cc explains why two slots and one wait per piece suffice. Any error has ended the world.
// Ownership: the world must outlive the channel. Thread safety: that of the world.
#ifndef PAGEMILL_CC_COMM_CHANNEL_H_
#define PAGEMILL_CC_COMM_CHANNEL_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cc/base/status.h"
#include "cc/comm/shared_memory_world.h"
#include "cc/comm/shared_segment.h"

namespace pagemill::comm {

class Channel {
 public:
  struct Member {
    int32_t rank = 0;  // in the world
    Lane* lane = nullptr;
    std::byte* slots = nullptr;  // null: it only receives
  };
  // `self` is this rank's index among `members`.
  Channel(SharedMemoryWorld* world, std::vector<Member> members, size_t self);

  // `fingerprint` identifies the call; together with the call's number it must be the same for
  // every member.
  void StartCall(uint64_t fingerprint);

  // Waits until this rank may write its slot of the next piece, which becomes the current one.
  Status NextPiece();
  std::byte* slot(size_t member) const {
    return members_[member].slots + (piece_ & 1) * static_cast<size_t>(slot_bytes_);
  }
  // Announces that this rank's slot holds its data for the current piece and that it has read
  // earlier pieces.
  void Begin();
  // Waits until `member` has begun the current piece, as part of the same call.
  Status AwaitData(size_t member);

  // In a channel of two: sends the other member's next piece, at most a slot; up to two are in
  // flight.
  Status Post(std::span<const std::byte> data);
  Status Take(std::span<std::byte> data);

  void WakePeers();
  void CheckIntegrity() const;

 private:
  bool HasBegun(size_t member, uint32_t piece) const;
  Status Await(size_t member, uint32_t piece);
  Status Sleep(size_t member, uint32_t piece);
  size_t other() const { return 1 - self_; }

  SharedMemoryWorld* const world_;
  const std::vector<Member> members_;
  const size_t self_;
  const int64_t slot_bytes_;
  uint32_t piece_;          // the last one that has begun or is about to
  uint64_t calls_ = 0;      // so far, including those that moved nothing
  uint64_t call_word_ = 0;  // of the current call
};

}  // namespace pagemill::comm

#endif  // PAGEMILL_CC_COMM_CHANNEL_H_
