// File: cc/comm/shared_memory_group.h
// Collectives along one axis between ranks of one host, through shared memory. Made by a
// SharedMemoryWorld (shared_memory_world.h), which documents how a group ends.
//
// Results do not depend on timing: sums are added in rank order, so that all ranks get the same
// bits every time. A waiting rank spins for a while, then sleeps.
//
// Cost: in an all-reduce, each rank writes its data once and reads that of all others; in a
// reduce-scatter, it reads its part of them; other calls write what a rank sends and read what it
// receives, once. A call of all ranks waits once for the others per slot of data. The messages of
// AllToAll, Send and Receive have slots for each pair of ranks: up to two slots of a message are
// sent before the receiver takes them.
#ifndef PAGEMILL_CC_COMM_SHARED_MEMORY_GROUP_H_
#define PAGEMILL_CC_COMM_SHARED_MEMORY_GROUP_H_

#include <cstdint>
#include <vector>

#include "cc/base/status.h"
#include "cc/comm/channel.h"
#include "cc/comm/group.h"
#include "cc/comm/shared_memory_world.h"

namespace pagemill::comm {

class SharedMemoryGroup final : public Group {
 public:
  // The group of the world's rank along `axis`, which must have several ranks. The world must
  // outlive it.
  SharedMemoryGroup(SharedMemoryWorld* world, Axis axis);

  const Status& status() const override { return world_->status(); }
  void Leave() override { world_->Leave(); }

  void WakePeers();
  // Aborts if the shared state contradicts this rank's.
  void CheckIntegrity() const;

 private:
  SharedMemoryGroup(SharedMemoryWorld* world, Axis axis, const std::vector<int32_t>& members);

  Status Run(const Collective& call) override;
  Status RunAllReduce(const Collective& call);
  Status RunReduceScatter(const Collective& call);
  Status RunAllGather(const Collective& call);
  Status RunAllToAll(const Collective& call);
  Status RunBroadcast(const Collective& call);
  Status RunSend(const Collective& call);
  Status RunReceive(const Collective& call);
  // The next piece of a sum: sends `bytes` bytes at `in` and returns the data of all ranks in
  // `parts`.
  Status GatherParts(const std::byte* in, int64_t bytes, std::span<const std::byte*> parts);

  SharedMemoryWorld* const world_;
  const int64_t slot_bytes_;
  Channel all_;
  std::vector<Channel> to_;    // per rank; its own is unused
  std::vector<Channel> from_;  // likewise
};

}  // namespace pagemill::comm

#endif  // PAGEMILL_CC_COMM_SHARED_MEMORY_GROUP_H_
