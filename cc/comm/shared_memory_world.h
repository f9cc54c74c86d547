// File: cc/comm/shared_memory_world.h
// One of the ranks of a host, processes or (in tests) threads, and its groups.
//
//   PAGEMILL_ASSIGN_OR_RETURN(std::shared_ptr<SharedMemoryWorld> world,
//                       SharedMemoryWorld::Join(segment, rank));
//   PAGEMILL_RETURN_IF_ERROR(world->WaitForAll(std::chrono::seconds(30)));
//   PAGEMILL_RETURN_IF_ERROR(world->groups().at(Axis::kTensor)->AllReduce(DType::kF32, x, x,
//   size));
//
// A rank that dies, leaves, or makes another call than its peers ends the world: every rank that
// waits in any group, now or later, gets an error within some 20 ms, and every later call repeats
// it.
//
// Ownership: shares the segment; groups() keep the world alive, and destroying the last of them
// leaves it. Thread safety: one thread at a time (the engine's).
#ifndef PAGEMILL_CC_COMM_SHARED_MEMORY_WORLD_H_
#define PAGEMILL_CC_COMM_SHARED_MEMORY_WORLD_H_

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "cc/base/status.h"
#include "cc/comm/group.h"
#include "cc/comm/process_watch.h"
#include "cc/comm/shared_segment.h"
#include "cc/comm/world.h"

namespace pagemill::comm {

class SharedMemoryGroup;

struct WaitOptions {
  int32_t spin_us = 100;  // how long a waiting rank spins before it sleeps
};

class SharedMemoryWorld final : public World,
                                public std::enable_shared_from_this<SharedMemoryWorld> {
 public:
  // kInvalidArgument: the rank does not exist. kFailedPrecondition: it has joined before.
  static StatusOr<std::shared_ptr<SharedMemoryWorld>> Join(std::shared_ptr<SharedSegment> segment,
                                                           int32_t rank,
                                                           const WaitOptions& wait = {});
  ~SharedMemoryWorld() override;  // leaves

  Groups groups() override;

  // Waits until every rank has joined; kUnavailable with those that have not within `limit`. That
  // does not end the world: call it again to wait longer.
  Status WaitForAll(std::chrono::milliseconds limit) override;

  // Ends the world for every rank. Idempotent.
  void Leave() override;
  // Leaves with this reason; returns it.
  Status Fail(Status status);
  // OK, or the reason why the world has ended.
  const Status& status() const { return status_; }

  // A rank that has left or died. Costs a system call per checked process.
  std::optional<int32_t> FindGone();
  std::chrono::steady_clock::duration spin() const { return spin_; }
  const SharedSegment& segment() const { return *segment_; }

  // Aborts if the shared state contradicts this rank's.
  void CheckIntegrity() const;

 private:
  SharedMemoryWorld(std::shared_ptr<SharedSegment> segment, int32_t rank, const WaitOptions& wait);
  void MakeGroups();

  const std::shared_ptr<SharedSegment> segment_;
  const std::chrono::steady_clock::duration spin_;
  std::vector<std::unique_ptr<ProcessWatch>> watches_;  // per rank, from the first check on
  Status status_;
  std::array<std::unique_ptr<SharedMemoryGroup>, kAxes.size()> groups_;  // null: an axis of one
};

}  // namespace pagemill::comm

#endif  // PAGEMILL_CC_COMM_SHARED_MEMORY_WORLD_H_
