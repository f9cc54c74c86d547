// File: cc/comm/communicator.h
// Collectives between the ranks of one host: processes, or threads in tests. Every rank makes the
// same calls, with the same sizes, in the same order.
//
//   PM_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> group, Communicator::Join(segment, rank));
//   PM_RETURN_IF_ERROR(group->WaitForAll(std::chrono::seconds(30)));
//   PM_RETURN_IF_ERROR(group->AllReduce(x, x));
//
// Results do not depend on timing: an all-reduce adds in rank order, so that all ranks get the same
// bits every time. A waiting rank spins for `spin_us`, then sleeps. A peer that dies, leaves or
// makes another call ends the group: every rank that waits, or waits later, gets an error within
// some 20 ms, and every later call repeats it.
//
// Data moves in pieces of at most a slot; a rank has two slots and fills them in turn, so that one
// wait for the others per piece is enough (communicator.cc says why). Cost of an all-reduce: each
// rank writes its data once and reads that of all others.
//
// Ownership: shares the segment. Thread safety: one thread at a time (the engine's).
#ifndef PAGEMILL_CC_COMM_COMMUNICATOR_H_
#define PAGEMILL_CC_COMM_COMMUNICATOR_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cc/base/status.h"
#include "cc/comm/process_watch.h"
#include "cc/comm/shared_segment.h"

namespace pagemill::comm {

struct WaitOptions {
  int32_t spin_us = 100;  // how long a waiting rank spins before it sleeps
};

class Communicator {
 public:
  // kInvalidArgument where there is no such rank, kFailedPrecondition where it has joined before.
  static StatusOr<std::unique_ptr<Communicator>> Join(std::shared_ptr<SharedSegment> segment,
                                                      int32_t rank, const WaitOptions& wait = {});
  ~Communicator();  // leaves
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int32_t rank() const { return rank_; }
  int32_t num_ranks() const { return segment_->num_ranks(); }

  // Until every rank has joined; kUnavailable naming those that have not within `limit`. That is no
  // end of the group: it may be called again.
  Status WaitForAll(std::chrono::milliseconds limit);

  // out[i] = the sum over all ranks of in[i], added in rank order. `out` may be `in`.
  Status AllReduce(std::span<const float> in, std::span<float> out);

  // Joins columns: `in` [rows, widths[rank]] of each rank becomes columns of `out` [rows, sum of
  // widths], in rank order. Both dense; widths are the same everywhere and may differ by rank.
  Status AllGather(const float* in, float* out, int64_t rows, std::span<const int64_t> widths);

  // `data` of rank `root` becomes that of every rank. The root does not wait for the others to take
  // it, beyond its two slots.
  Status Broadcast(std::span<std::byte> data, int32_t root);

  // Ends the group for everybody; for a rank that cannot go on. Idempotent.
  void Leave();

  // OK, or why the group has ended.
  const Status& status() const { return status_; }

  // Aborts where the shared state contradicts this rank's.
  void CheckIntegrity() const;

 private:
  // What is being done, for a check that all ranks do the same.
  struct Call {
    uint64_t kind;
    uint64_t size;
  };

  Communicator(std::shared_ptr<SharedSegment> segment, int32_t rank, const WaitOptions& wait);
  StatusOr<uint32_t> NextPiece();
  void Begin(uint32_t piece, const Call& call);
  Status AwaitCall(int32_t peer, uint32_t piece, const Call& call);
  Status Await(int32_t peer, uint32_t piece);
  Status Sleep(int32_t peer, uint32_t piece);
  bool HasBegun(int32_t peer, uint32_t piece) const;
  int32_t FindGone();  // a rank that has left or died; -1 where there is none
  Status Fail(Status status);

  const std::shared_ptr<SharedSegment> segment_;
  const int32_t rank_;
  const std::chrono::steady_clock::duration spin_;
  uint32_t piece_ = 0;                                  // the last one begun
  std::vector<std::unique_ptr<ProcessWatch>> watches_;  // of each rank, from the first look on
  Status status_;
};

}  // namespace pagemill::comm

#endif  // PAGEMILL_CC_COMM_COMMUNICATOR_H_
