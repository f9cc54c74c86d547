// File: cc/comm/tcp/tcp_world.h
// One of the ranks of several machines (nodes), and its groups. Groups with ranks of several nodes
// exchange their data by TCP (tcp_group.h); those of one node use its shared memory.
//
//   PAGEMILL_ASSIGN_OR_RETURN(std::shared_ptr<TcpWorld> world,
//                             TcpWorld::Join(options, rank, local));
//   PAGEMILL_RETURN_IF_ERROR(world->WaitForAll(std::chrono::minutes(10)));
//   PAGEMILL_RETURN_IF_ERROR(world->groups().at(Axis::kPipeline)->Send(data, 1));
//
// A rank that dies, leaves, or makes another call than its peers ends the world. Every rank that
// waits for it gets an error at once, and sends a farewell to its own peers, so that messages of
// all name the rank that was the first. A machine that vanishes is noticed after about
// `timeout_ms`, twice that if nothing was being sent.
//
// Ownership: shares the local world; groups() keep the world alive, and destroying the last of them
// leaves it. Thread safety: one thread at a time (the engine's), except for Check() and
// NoteDeath().
#ifndef PAGEMILL_CC_COMM_TCP_TCP_WORLD_H_
#define PAGEMILL_CC_COMM_TCP_TCP_WORLD_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cc/base/status.h"
#include "cc/comm/group.h"
#include "cc/comm/shared_memory_world.h"
#include "cc/comm/tcp/links.h"
#include "cc/comm/tcp/node_options.h"
#include "cc/comm/tcp/rendezvous.h"
#include "cc/comm/tcp/tcp_group.h"
#include "cc/comm/world.h"

namespace pagemill::comm {

class TcpWorld final : public World, public std::enable_shared_from_this<TcpWorld> {
 public:
  // Rank `rank` of all. `local` has the ranks of this node, with its tensor groups; it is needed if
  // a node has whole tensor groups of several ranks, and null otherwise. kInvalidArgument for
  // options or a rank out of range; errors of Rendezvous::Begin().
  static StatusOr<std::shared_ptr<TcpWorld>> Join(const NodeOptions& options, int32_t rank,
                                                  std::shared_ptr<SharedMemoryWorld> local = {});
  ~TcpWorld() override;  // leaves

  // After WaitForAll() has succeeded.
  Groups groups() override;
  Status WaitForAll(std::chrono::milliseconds limit) override;
  void Leave() override;

  // The smallest NodeOptions::number of all ranks, after WaitForAll() has succeeded.
  int64_t number() const { return number_; }
  // OK, or the reason why the world has ended.
  const Status& status() const;
  // Whether it has ended because rank 0 was done.
  bool is_done() const;
  // kUnavailable with the name of a rank whose connection is over; any thread.
  Status Check() const;
  // A rank has died, as this process knows: Leave() does not say that this one is done. Any thread.
  void NoteDeath() { has_death_ = true; }

  // Links::Exchange(); an error ends the world.
  Status Exchange(std::span<const Links::Outgoing> out, std::span<const Links::Incoming> in);

 private:
  TcpWorld(const NodeOptions& options, int32_t rank, std::unique_ptr<Rendezvous> rendezvous,
           std::shared_ptr<SharedMemoryWorld> local);
  void Begin(Rendezvous::Result result);
  Status Fail(Status status);
  Links::Farewell WhyItEnds() const;

  const NodeOptions options_;
  const std::shared_ptr<SharedMemoryWorld> local_;
  std::unique_ptr<Rendezvous> rendezvous_;  // null once all have joined
  std::vector<std::string> names_;          // of ranks, in messages
  std::unique_ptr<Links> links_;            // null until then
  std::atomic<bool> has_begun_{false};
  std::atomic<bool> has_death_{false};
  int64_t number_ = 0;
  Status status_;
  std::array<std::unique_ptr<TcpGroup>, kAxes.size()> groups_;  // null: not of several nodes
};

}  // namespace pagemill::comm

#endif  // PAGEMILL_CC_COMM_TCP_TCP_WORLD_H_
