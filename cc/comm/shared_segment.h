// File: cc/comm/shared_segment.h
// The memory that the ranks of one host share: for each rank its state, and for each channel that
// it takes part in (channel.h) a lane of counters and two slots of data.
//
//   PAGEMILL_ASSIGN_OR_RETURN(std::shared_ptr<SharedSegment> segment,
//                       SharedSegment::Create({.topology = {.tensor = 2}}));            // rank 0
//   PAGEMILL_ASSIGN_OR_RETURN(std::shared_ptr<SharedSegment> same, SharedSegment::Open(fd));  //
//   others
//
// There is one segment for all groups of all axes. So a process gets one descriptor whatever the
// topology, and a rank that ends does so in all its groups at once, for every rank that waits.
//
// It has no name: other processes get its descriptor, by fork() or by inheriting it, so that
// nothing is left behind however the ranks end. Its size is fixed and sealed. Pages take memory
// when they are first touched, near the rank that writes them: lanes that are never used cost only
// addresses.
//
// Ownership: the mapping and, in the process that made it, the descriptor. Immutable except for the
// memory it points to; thread-safe.
#ifndef PAGEMILL_CC_COMM_SHARED_SEGMENT_H_
#define PAGEMILL_CC_COMM_SHARED_SEGMENT_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "cc/base/status.h"
#include "cc/comm/group.h"
#include "cc/comm/topology.h"

namespace pagemill::comm {

struct SegmentOptions {
  Topology topology = {};          // by default one rank
  int64_t slot_bytes = 128 << 10;  // of one slot, a multiple of 64; larger data goes in pieces

  // kInvalidArgument names the field, its value and its range.
  Status Validate() const;
};

// What a rank tells the others about itself.
struct RankState {
  alignas(64) int32_t process_id = 0;  // written before `joined`
  std::atomic<uint32_t> joined{0};
  std::atomic<uint32_t> left{0};
};

// What a rank tells the others in one channel. A cache line of its own: it is spun on.
struct Lane {
  // Number of the last piece that this rank has begun, modulo 2^32; what that says is channel.h's.
  alignas(64) std::atomic<uint32_t> begun{0};
  std::atomic<uint32_t> sleepers{0};  // ranks that sleep on `begun`, or are about to
  // Fingerprints of the calls that the last two pieces belong to, by parity; written before
  // `begun`.
  std::array<uint64_t, 2> call{};
};

// A rank's lanes along an axis with n members: one for the calls of all members, one for what it
// sends to each of them, and one for what it takes from each, which has no slots.
struct LaneIndex {
  int32_t value = 0;

  static LaneIndex All() { return {0}; }
  static LaneIndex To(int32_t member) { return {1 + member}; }
  static LaneIndex From(int32_t member, int32_t num_members) { return {1 + num_members + member}; }
};

class SharedSegment {
 public:
  static StatusOr<std::shared_ptr<SharedSegment>> Create(const SegmentOptions& options);
  // Maps what Create() made in another process. `fd` stays the caller's. kInvalidArgument: it is no
  // segment of this version.
  static StatusOr<std::shared_ptr<SharedSegment>> Open(int fd);
  ~SharedSegment();
  SharedSegment(const SharedSegment&) = delete;
  SharedSegment& operator=(const SharedSegment&) = delete;

  int fd() const { return fd_; }  // -1 if it was opened
  const Topology& topology() const { return options_.topology; }
  int64_t slot_bytes() const { return options_.slot_bytes; }
  RankState& state(int32_t rank) const;
  // Of rank `rank` of all. The axis has more than one member.
  Lane& lane(int32_t rank, Axis axis, LaneIndex index) const;
  // Its two slots, one after the other.
  std::byte* slots(int32_t rank, Axis axis, LaneIndex index) const;

 private:
  SharedSegment(int fd, std::byte* base, const SegmentOptions& options)
      : fd_(fd), base_(base), options_(options) {}

  const int fd_;
  std::byte* const base_;
  const SegmentOptions options_;
};

}  // namespace pagemill::comm

#endif  // PAGEMILL_CC_COMM_SHARED_SEGMENT_H_
