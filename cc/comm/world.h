// File: cc/comm/world.h
// All ranks that run a model together, as one of them has it: its number, its place on its machine,
// and its groups. SharedMemoryWorld (shared_memory_world.h) has the ranks of one host, TcpWorld
// (tcp/tcp_world.h) those of several.
//
//   PAGEMILL_RETURN_IF_ERROR(world->WaitForAll(std::chrono::seconds(30)));
//   comm::Group* tensor = world->groups().at(comm::Axis::kTensor);
//
// Thread safety: one thread at a time.
#ifndef PAGEMILL_CC_COMM_WORLD_H_
#define PAGEMILL_CC_COMM_WORLD_H_

#include <chrono>
#include <cstdint>

#include "cc/base/status.h"
#include "cc/comm/group.h"

namespace pagemill::comm {

// A rank among those of its machine, which share its cores.
struct LocalRank {
  int32_t rank = 0;
  int32_t num_ranks = 1;
};

// An implementation:
//  1. has groups once all ranks have joined, which keep the world alive;
//  2. returns kUnavailable from WaitForAll() with those that have not joined, if it may be called
//     again, and kUnavailable or another code that later calls repeat if the world has ended;
//  3. ends the world for every rank in Leave(), which is idempotent.
class World {
 public:
  virtual ~World() = default;
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int32_t rank() const { return rank_; }
  int32_t num_ranks() const { return num_ranks_; }
  const LocalRank& local() const { return local_; }
  bool spans_nodes() const { return local_.num_ranks < num_ranks_; }

  virtual Groups groups() = 0;
  virtual Status WaitForAll(std::chrono::milliseconds limit) = 0;
  virtual void Leave() = 0;

 protected:
  World(int32_t rank, int32_t num_ranks, const LocalRank& local)
      : rank_(rank), num_ranks_(num_ranks), local_(local) {}

 private:
  const int32_t rank_;
  const int32_t num_ranks_;
  const LocalRank local_;
};

}  // namespace pagemill::comm

#endif  // PAGEMILL_CC_COMM_WORLD_H_
