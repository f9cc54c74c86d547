// File: cc/comm/shared_segment.h
// The memory that the ranks of one host share: for each rank its state, and for each channel that
// it takes part in (channel.h) a lane of counters and two slots of data.
//
//   PAGEMILL_ASSIGN_OR_RETURN(std::shared_ptr<SharedSegment> segment,
//                       SharedSegment::Create({.topology = {.tensor = 2}}));            // rank 0
//   PAGEMILL_ASSIGN_OR_RETURN(std::shared_ptr<SharedSegment> same, SharedSegment::Open(fd));  //
//   others
//
// All groups of all axes share one segment. So a process needs one descriptor for any topology, and
// a rank that ends leaves all its groups at once, for every waiting rank.
//
// It has no name: other processes inherit its descriptor or get it by fork(), so nothing is left
// behind however the ranks end. Its size is fixed and sealed. Pages take memory when they are first
// touched, near the rank that writes them: unused lanes cost only addresses.
//
// Ownership: the mapping and, in the process that created it, the descriptor. Immutable except for
// the memory it points to; thread-safe.
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
  int64_t slot_bytes = 128 << 10;  // of one slot, a multiple of 64; larger data is sent in pieces

  // kInvalidArgument names the field, its value and its range.
  Status Validate() const;
};

// The state that a rank publishes to the others.
struct RankState {
  alignas(64) int32_t process_id = 0;  // written before `joined`
  std::atomic<uint32_t> joined{0};
  std::atomic<uint32_t> left{0};
};

// The state that a rank publishes in one channel. On its own cache line because peers spin on it.
struct Lane {
  // Number of the last piece that this rank has begun, modulo 2^32; see channel.h.
  alignas(64) std::atomic<uint32_t> begun{0};
  std::atomic<uint32_t> sleepers{0};  // ranks that sleep on `begun`, or are about to
  // Fingerprints of the calls that the last two pieces belong to, by parity; written before
  // `begun`.
  std::array<uint64_t, 2> call{};
};

// A rank's lanes along an axis with n members: one for the calls of all members, one for sending to
// each member, and one, without slots, for receiving from each.
struct LaneIndex {
  int32_t value = 0;

  static LaneIndex All() { return {0}; }
  static LaneIndex To(int32_t member) { return {1 + member}; }
  static LaneIndex From(int32_t member, int32_t num_members) { return {1 + num_members + member}; }
};

class SharedSegment {
 public:
  static StatusOr<std::shared_ptr<SharedSegment>> Create(const SegmentOptions& options);
  // Maps a segment that Create() made in another process. The caller keeps `fd`. kInvalidArgument
  // if it is not a segment of this version.
  static StatusOr<std::shared_ptr<SharedSegment>> Open(int fd);
  ~SharedSegment();
  SharedSegment(const SharedSegment&) = delete;
  SharedSegment& operator=(const SharedSegment&) = delete;

  int fd() const { return fd_; }  // -1 if it was opened
  const Topology& topology() const { return options_.topology; }
  int64_t slot_bytes() const { return options_.slot_bytes; }
  RankState& state(int32_t rank) const;
  // The lane of rank `rank` (of all ranks). The axis must have more than one member.
  Lane& lane(int32_t rank, Axis axis, LaneIndex index) const;
  // The lane's two slots, one after the other.
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
