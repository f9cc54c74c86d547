// File: cc/comm/shared_segment.h
// The memory that the ranks of a group share: for each rank a line of state and two slots of data.
// Communicator (communicator.h) is what moves data through it.
//
//   PM_ASSIGN_OR_RETURN(std::shared_ptr<SharedSegment> segment,
//                       SharedSegment::Create({.num_ranks = 2}));       // rank 0
//   PM_ASSIGN_OR_RETURN(std::shared_ptr<SharedSegment> same, SharedSegment::Open(fd));  // others
//
// It has no name: other processes get its descriptor, by fork() or by inheriting it, so that
// nothing is left behind however the ranks end. Its size is fixed and sealed. Pages are placed
// where they are first touched, a slot by the rank that writes it.
//
// Ownership: the mapping and, in the process that made it, the descriptor. Immutable but for the
// memory it points to; thread-safe.
#ifndef PAGEMILL_CC_COMM_SHARED_SEGMENT_H_
#define PAGEMILL_CC_COMM_SHARED_SEGMENT_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "cc/base/status.h"

namespace pagemill::comm {

inline constexpr int32_t kMaxRanks = 64;

struct GroupOptions {
  int32_t num_ranks = 1;           // 1 to kMaxRanks
  int64_t slot_bytes = 128 << 10;  // of one slot, a multiple of 64; larger data goes in pieces

  // kInvalidArgument names the field, its value and its range.
  Status Validate() const;
};

// What a rank tells the others. Counters and flags have lines of their own: they are spun on.
struct RankState {
  // Number of the last piece that this rank has begun, modulo 2^32: its slot holds its data (if it
  // gives any), and it has read all it wanted of the pieces before.
  alignas(64) std::atomic<uint32_t> begun{0};
  std::atomic<uint32_t> sleepers{0};  // ranks that sleep on `begun`, or are about to
  // Which call the last two pieces belong to, by parity; written before `begun`.
  std::array<uint64_t, 2> call{};
  // Who it is; written before `joined`.
  alignas(64) int32_t process_id = 0;
  std::atomic<uint32_t> joined{0};
  std::atomic<uint32_t> left{0};
};

class SharedSegment {
 public:
  static StatusOr<std::shared_ptr<SharedSegment>> Create(const GroupOptions& options);
  // Maps what Create() made in another process. `fd` stays the caller's. kInvalidArgument where it
  // is no segment of this version.
  static StatusOr<std::shared_ptr<SharedSegment>> Open(int fd);
  ~SharedSegment();
  SharedSegment(const SharedSegment&) = delete;
  SharedSegment& operator=(const SharedSegment&) = delete;

  int fd() const { return fd_; }  // -1 where it was opened
  int32_t num_ranks() const { return options_.num_ranks; }
  int64_t slot_bytes() const { return options_.slot_bytes; }
  RankState& state(int32_t rank) const;
  std::byte* slot(int32_t rank, uint32_t parity) const;

 private:
  SharedSegment(int fd, std::byte* base, const GroupOptions& options)
      : fd_(fd), base_(base), options_(options) {}

  const int fd_;
  std::byte* const base_;
  const GroupOptions options_;
};

}  // namespace pagemill::comm

#endif  // PAGEMILL_CC_COMM_SHARED_SEGMENT_H_
