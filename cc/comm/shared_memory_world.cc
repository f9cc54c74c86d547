#include "cc/comm/shared_memory_world.h"

#include <unistd.h>

#include <string>
#include <thread>
#include <utility>

#include "cc/comm/futex.h"
#include "cc/comm/shared_memory_group.h"

namespace pagemill::comm {

StatusOr<std::shared_ptr<SharedMemoryWorld>> SharedMemoryWorld::Join(
    std::shared_ptr<SharedSegment> segment, int32_t rank, const WaitOptions& wait) {
  const int32_t num_ranks = segment->topology().num_ranks();
  if (rank < 0 || rank >= num_ranks) {
    return InvalidArgument("rank is " + std::to_string(rank) + "; a group of " +
                           std::to_string(num_ranks) + " has ranks from 0");
  }
  RankState& state = segment->state(rank);
  if (state.joined.load(std::memory_order_acquire) != 0) {
    return FailedPrecondition("rank " + std::to_string(rank) + " has joined before");
  }
  std::shared_ptr<SharedMemoryWorld> world(new SharedMemoryWorld(std::move(segment), rank, wait));
  world->MakeGroups();
  state.process_id = getpid();
  state.joined.store(1, std::memory_order_release);
  return world;
}

SharedMemoryWorld::SharedMemoryWorld(std::shared_ptr<SharedSegment> segment, int32_t rank,
                                     const WaitOptions& wait)
    : World(rank, segment->topology().num_ranks(), {rank, segment->topology().num_ranks()}),
      segment_(std::move(segment)),
      spin_(std::chrono::microseconds(wait.spin_us)),
      watches_(static_cast<size_t>(segment_->topology().num_ranks())) {}

SharedMemoryWorld::~SharedMemoryWorld() { Leave(); }

void SharedMemoryWorld::MakeGroups() {
  for (Axis axis : kAxes) {
    if (segment_->topology().Size(axis) == 1) continue;
    groups_[static_cast<size_t>(axis)] = std::make_unique<SharedMemoryGroup>(this, axis);
  }
}

Groups SharedMemoryWorld::groups() {
  Groups groups;
  for (Axis axis : kAxes) {
    SharedMemoryGroup* group = groups_[static_cast<size_t>(axis)].get();
    if (group != nullptr) groups.Set(axis, std::shared_ptr<Group>(shared_from_this(), group));
  }
  return groups;
}

void SharedMemoryWorld::Leave() {
  if (segment_->state(rank()).left.exchange(1) != 0) return;
  if (status_.ok()) status_ = Unavailable("rank " + std::to_string(rank()) + " has left the group");
  for (const auto& group : groups_) {
    if (group != nullptr) group->WakePeers();
  }
}

Status SharedMemoryWorld::Fail(Status status) {
  status_ = std::move(status);
  Leave();
  return status_;
}

Status SharedMemoryWorld::WaitForAll(std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (true) {
    PAGEMILL_RETURN_IF_ERROR(status_);
    std::string missing;
    for (int32_t r = 0; r < num_ranks(); ++r) {
      if (segment_->state(r).joined.load(std::memory_order_acquire) == 0) {
        missing += (missing.empty() ? "" : ", ") + std::to_string(r);
      }
    }
    if (missing.empty()) return OkStatus();
    if (const std::optional<int32_t> gone = FindGone()) {
      return Fail(Unavailable("rank " + std::to_string(*gone) + " of " +
                              std::to_string(num_ranks()) + " ended before all had joined"));
    }
    if (std::chrono::steady_clock::now() >= deadline) {
      return Unavailable("of " + std::to_string(num_ranks()) +
                         " ranks these have not joined: " + missing);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

std::optional<int32_t> SharedMemoryWorld::FindGone() {
  std::optional<int32_t> left;
  for (int32_t r = 0; r < num_ranks(); ++r) {
    const RankState& state = segment_->state(r);
    if (r == rank() || state.joined.load(std::memory_order_acquire) == 0) continue;
    if (state.left.load() != 0) {
      if (!left) left = r;
      continue;
    }
    if (state.process_id == getpid()) continue;  // a thread of this process
    std::unique_ptr<ProcessWatch>& watch = watches_[static_cast<size_t>(r)];
    if (watch == nullptr) watch = std::make_unique<ProcessWatch>(state.process_id);
    // Others may have left because of it.
    if (watch->HasEnded() && state.left.load() == 0) return r;
  }
  return left;
}

void SharedMemoryWorld::CheckIntegrity() const {
  const RankState& mine = segment_->state(rank());
  PAGEMILL_CHECK(mine.joined.load() == 1);
  PAGEMILL_CHECK(mine.process_id == getpid());
  PAGEMILL_CHECK((mine.left.load() == 0) == status_.ok());
  for (Axis axis : kAxes) {
    const auto& group = groups_[static_cast<size_t>(axis)];
    PAGEMILL_CHECK((group == nullptr) == (segment_->topology().Size(axis) == 1));
    if (group != nullptr && status_.ok()) group->CheckIntegrity();
  }
}

}  // namespace pagemill::comm
