#include "cc/comm/tcp/tcp_world.h"

#include <optional>
#include <utility>

namespace pagemill::comm {

StatusOr<std::shared_ptr<TcpWorld>> TcpWorld::Join(const NodeOptions& options, int32_t rank,
                                                   std::shared_ptr<SharedMemoryWorld> local) {
  PAGEMILL_RETURN_IF_ERROR(options.Validate());
  if (rank < 0 || rank >= options.topology.num_ranks()) {
    return InvalidArgument("rank is " + std::to_string(rank) + "; " +
                           std::to_string(options.topology.num_ranks()) +
                           " ranks are numbered from 0");
  }
  PAGEMILL_ASSIGN_OR_RETURN(std::unique_ptr<Rendezvous> rendezvous,
                            Rendezvous::Begin(options, rank));
  return std::shared_ptr<TcpWorld>(
      new TcpWorld(options, rank, std::move(rendezvous), std::move(local)));
}

TcpWorld::TcpWorld(const NodeOptions& options, int32_t rank, std::unique_ptr<Rendezvous> rendezvous,
                   std::shared_ptr<SharedMemoryWorld> local)
    : World(rank, options.topology.num_ranks(), options.local(rank)),
      options_(options),
      local_(std::move(local)),
      rendezvous_(std::move(rendezvous)) {}

TcpWorld::~TcpWorld() { Leave(); }

Status TcpWorld::WaitForAll(std::chrono::milliseconds limit) {
  PAGEMILL_RETURN_IF_ERROR(status());
  if (rendezvous_ != nullptr) {
    const Status joined = rendezvous_->Run(limit);
    if (joined.code() == StatusCode::kUnavailable) return joined;  // to be called again
    if (!joined.ok()) return Fail(joined);
    Begin(std::move(*rendezvous_).Take());
    rendezvous_.reset();
  }
  return local_ == nullptr ? OkStatus() : local_->WaitForAll(limit);
}

void TcpWorld::Begin(Rendezvous::Result result) {
  number_ = result.number;
  for (int32_t r = 0; r < num_ranks(); ++r) {
    names_.push_back("rank " + std::to_string(r) + " of " + std::to_string(num_ranks()) +
                     " (node " + std::to_string(options_.node_of(r)) + ", " +
                     result.hosts[static_cast<size_t>(r)] + ")");
  }
  links_ = std::make_unique<Links>(names_, std::chrono::microseconds(options_.spin_us));
  for (const int32_t peer : options_.Peers(rank())) {
    links_->Add(peer, *std::move(result.sockets[static_cast<size_t>(peer)]));
  }
  for (const Axis axis : kAxes) {
    if (!options_.Spans(axis, rank())) continue;
    groups_[static_cast<size_t>(axis)] =
        std::make_unique<TcpGroup>(this, axis, options_.topology.Members(axis, rank()));
  }
  has_begun_ = true;
}

Groups TcpWorld::groups() {
  Groups groups;
  for (const Axis axis : kAxes) {
    Group* group = groups_[static_cast<size_t>(axis)].get();
    if (group == nullptr && local_ != nullptr && !options_.Spans(axis, rank())) {
      group = local_->groups().at(axis);
    }
    if (group != nullptr) groups.Set(axis, std::shared_ptr<Group>(shared_from_this(), group));
  }
  return groups;
}

const Status& TcpWorld::status() const {
  return status_.ok() && local_ != nullptr ? local_->status() : status_;
}

bool TcpWorld::is_done() const {
  if (links_ == nullptr) return false;
  const std::optional<Links::Farewell>& ended = links_->ended();
  return ended && ended->is_done && ended->rank == 0;
}

Status TcpWorld::Check() const {
  if (!has_begun_) return OkStatus();
  const std::optional<int32_t> gone = links_->FindGone();
  if (!gone) return OkStatus();
  return Unavailable(names_[static_cast<size_t>(*gone)] + " has died or left the group");
}

Status TcpWorld::Exchange(std::span<const Links::Outgoing> out,
                          std::span<const Links::Incoming> in) {
  Status status = links_->Exchange(out, in);
  return status.ok() ? status : Fail(std::move(status));
}

Status TcpWorld::Fail(Status status) {
  status_ = std::move(status);
  Leave();
  return status_;
}

Links::Farewell TcpWorld::WhyItEnds() const {
  if (links_->ended()) return *links_->ended();
  if (const std::optional<int32_t> gone = links_->FindGone()) return {.rank = *gone};
  return {.rank = rank(), .is_done = status().ok() && !has_death_};
}

void TcpWorld::Leave() {
  rendezvous_.reset();
  if (links_ != nullptr) links_->ShutDown(WhyItEnds());
  if (status().ok())
    status_ = Unavailable("rank " + std::to_string(rank()) + " has left the group");
  if (local_ != nullptr) local_->Leave();
}

}  // namespace pagemill::comm
