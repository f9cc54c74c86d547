#include "cc/comm/tcp/rendezvous.h"

#include <poll.h>

#include <algorithm>
#include <utility>

namespace pagemill::comm {
namespace {

// Connections whose handshake is not over, and how long one may take.
constexpr size_t kMaxGuests = 64;
constexpr int64_t kHandshakeMs = 10'000;
// Between attempts to connect to rank 0, which may be started later.
constexpr int64_t kRetryMs = 200;
constexpr int64_t kMaxWaitMs = 50;

int64_t NowMs() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

std::string Node(int32_t node) { return "node " + std::to_string(node); }

}  // namespace

Rendezvous::Rendezvous(const NodeOptions& options, int32_t rank)
    : options_(options),
      rank_(rank),
      peers_(options.Peers(rank)),
      secret_(options.secret),
      sockets_(static_cast<size_t>(options.topology.num_ranks())) {}

StatusOr<std::unique_ptr<Rendezvous>> Rendezvous::Begin(const NodeOptions& options, int32_t rank) {
  std::unique_ptr<Rendezvous> made(new Rendezvous(options, rank));
  if (rank != 0) return made;
  PAGEMILL_ASSIGN_OR_RETURN(net::TcpSocket listener, net::TcpSocket::Listen(options.master));
  made->listener_.emplace(std::move(listener));
  return made;
}

Status Rendezvous::Run(std::chrono::milliseconds limit) {
  const int64_t end_ms = NowMs() + limit.count();
  while (true) {
    PAGEMILL_RETURN_IF_ERROR(Turn(NowMs()));
    if (is_done()) return OkStatus();
    const int64_t left_ms = end_ms - NowMs();
    if (left_ms <= 0) return Unavailable(Missing());
    Wait(std::min(left_ms, kMaxWaitMs));
  }
}

Rendezvous::Result Rendezvous::Take() && {
  Result result;
  result.sockets = std::move(sockets_);
  result.number = start_->number;
  for (const Start::Place& place : start_->places) result.hosts.push_back(place.host);
  return result;
}

bool Rendezvous::is_done() const {
  if (!start_ || !members_.empty()) return false;
  return std::ranges::all_of(
      peers_, [this](int32_t peer) { return sockets_[static_cast<size_t>(peer)].has_value(); });
}

Status Rendezvous::Turn(int64_t now_ms) {
  if (rank_ != 0 && !start_) PAGEMILL_RETURN_IF_ERROR(AdvanceMaster(now_ms));
  PAGEMILL_RETURN_IF_ERROR(AdvanceHosts(now_ms));
  AdvanceGuests(now_ms);
  return rank_ == 0 ? AdvanceMembers(now_ms) : OkStatus();
}

Claim Rendezvous::Mine() const {
  Claim claim = {.version = options_.version,
                 .model = options_.model,
                 .options = options_.options,
                 .rank = rank_,
                 .number = options_.number};
  if (listener_) {
    const StatusOr<net::NetAddress> address = listener_->address();
    if (address.ok()) claim.port = address->port();
  }
  return claim;
}

Status Rendezvous::Connect(int32_t rank, const net::NetAddress& address, int64_t now_ms) {
  PAGEMILL_ASSIGN_OR_RETURN(net::TcpSocket socket,
                            net::TcpSocket::Connect(address, options_.timeout_ms));
  const bool listens = rank == 0 && !listener_ && !peers_.empty() && peers_.back() > rank_;
  if (listens) {
    PAGEMILL_ASSIGN_OR_RETURN(const net::NetAddress own, socket.address());
    PAGEMILL_ASSIGN_OR_RETURN(const net::NetAddress any, net::NetAddress::Make(own.host(), "0"));
    PAGEMILL_ASSIGN_OR_RETURN(net::TcpSocket listener, net::TcpSocket::Listen(any));
    listener_.emplace(std::move(listener));
  }
  Host host = {.stream = net::FrameStream(std::move(socket), kHandshakeMs),
               .handshake = net::ClientHandshake(&kJoinProtocol, &secret_, Encode(Mine())),
               .since_ms = now_ms};
  PAGEMILL_RETURN_IF_ERROR(host.handshake.Start(&host.stream));
  hosts_.emplace(rank, std::move(host));
  return OkStatus();
}

// Tries again until rank 0 listens.
Status Rendezvous::AdvanceMaster(int64_t now_ms) {
  const auto master = hosts_.find(0);
  if (master == hosts_.end()) {
    if (now_ms < retry_ms_) return OkStatus();
    retry_ms_ = now_ms + kRetryMs;
    const Status status = Connect(0, options_.master, now_ms);
    return status.code() == StatusCode::kUnavailable ? OkStatus() : status;
  }
  Host& host = master->second;
  const bool had_joined = host.handshake.is_done();
  const StatusOr<bool> done = Advance(0, &host, now_ms);
  if (done.ok() && *done) {
    sockets_[0].emplace(std::move(host.stream).TakeSocket());
    hosts_.erase(master);
    if (!std::ranges::count(peers_, 0)) sockets_[0].reset();
    return ConnectToPeers(now_ms);
  }
  const bool is_late = !host.handshake.is_done() && now_ms - host.since_ms > kHandshakeMs;
  if (done.ok() && !is_late) return OkStatus();
  if (!done.ok() && done.status().code() != StatusCode::kUnavailable) return done.status();
  if (had_joined) return FailedPrecondition("rank 0 ended before all ranks had joined");
  hosts_.erase(master);
  return OkStatus();
}

Status Rendezvous::ConnectToPeers(int64_t now_ms) {
  for (const int32_t peer : peers_) {
    if (peer == 0 || peer > rank_) continue;
    const Start::Place& place = start_->places[static_cast<size_t>(peer)];
    PAGEMILL_ASSIGN_OR_RETURN(const net::NetAddress address,
                              net::NetAddress::Make(place.host, std::to_string(place.port)));
    const Status status = Connect(peer, address, now_ms);
    if (!status.ok()) return CannotJoin(peer, status);
  }
  return OkStatus();
}

// Final, whatever the code of `why`: others count on this rank by now.
Status Rendezvous::CannotJoin(int32_t rank, const Status& why) const {
  return FailedPrecondition("rank " + std::to_string(rank) + " (" + Node(options_.node_of(rank)) +
                            ") cannot be joined: " + why.message());
}

Status Rendezvous::AdvanceHosts(int64_t now_ms) {
  for (auto at = hosts_.begin(); at != hosts_.end();) {
    auto& [rank, host] = *at;
    if (rank == 0) {
      ++at;
      continue;
    }
    StatusOr<bool> done = Advance(rank, &host, now_ms);
    if (done.ok() && !*done && now_ms - host.since_ms > options_.timeout_ms) {
      done = FailedPrecondition("it did not answer");
    }
    if (!done.ok()) return CannotJoin(rank, done.status());
    if (*done) sockets_[static_cast<size_t>(rank)].emplace(std::move(host.stream).TakeSocket());
    at = *done ? hosts_.erase(at) : std::next(at);
  }
  return OkStatus();
}

StatusOr<bool> Rendezvous::Advance(int32_t rank, Host* host, int64_t now_ms) {
  while (true) {
    PAGEMILL_RETURN_IF_ERROR(host->stream.Flush(now_ms));
    const bool joins = !host->handshake.is_done();
    PAGEMILL_ASSIGN_OR_RETURN(
        const std::optional<net::Frame> frame,
        host->stream.Read(joins ? kJoinProtocol.MaxBytes() : kStartBytes, now_ms));
    if (!frame) return false;
    if (!joins) {
      start_ = DecodeStart(frame->payload, options_.topology.num_ranks());
      if (frame->type == kStart && start_) return true;
      return DataLoss("rank 0 sent something else than where the other ranks are");
    }
    PAGEMILL_RETURN_IF_ERROR(host->handshake.Take(*frame, &host->stream));
    if (!host->handshake.is_done()) continue;
    const std::string reason = DecodeReason(host->handshake.answer());
    if (!reason.empty()) return FailedPrecondition(reason);
    if (rank != 0) return true;
  }
}

std::string Rendezvous::ReasonAgainst(const Claim& claim) const {
  const std::string other = Node(options_.node_of(claim.rank)), own = Node(options_.node_of(rank_));
  if (claim.version != options_.version) {
    return other + " has version " + claim.version + " of Pagemill and " + own + " has " +
           options_.version + ": install one version on all nodes";
  }
  if (claim.options != options_.options) {
    return other + " was started with other options than " + own +
           ": give all nodes the same, except --node-rank";
  }
  if (claim.model != options_.model) {
    return other + " has another model, or other files of it, than " + own +
           ": give all nodes the same files";
  }
  const bool is_expected = rank_ == 0 || std::ranges::count(peers_, claim.rank) > 0;
  if (claim.rank == rank_ || claim.rank >= options_.topology.num_ranks() || !is_expected) {
    return own + " expects no rank " + std::to_string(claim.rank) + ": see --node-rank";
  }
  if (members_.contains(claim.rank) || sockets_[static_cast<size_t>(claim.rank)]) {
    return "rank " + std::to_string(claim.rank) + " has joined before: is --node-rank " +
           std::to_string(options_.node_of(claim.rank)) + " given to two nodes?";
  }
  return "";
}

std::optional<net::Payload> Rendezvous::Judge(Guest* guest, std::span<const std::byte> payload) {
  guest->claim = DecodeClaim(payload);
  if (!guest->claim) return std::nullopt;
  guest->reason = ReasonAgainst(*guest->claim);
  return EncodeReason(guest->reason);
}

// One at a time, so that a flood of connections leaves time for the others; the oldest makes room.
void Rendezvous::Accept(int64_t now_ms) {
  if (!listener_) return;
  StatusOr<std::optional<net::TcpSocket>> accepted = listener_->Accept(options_.timeout_ms);
  accepts_ = accepted.ok();
  if (!accepted.ok() || !*accepted) return;
  if (guests_.size() >= kMaxGuests) guests_.erase(guests_.begin());
  auto guest = std::make_unique<Guest>(
      net::FrameStream(*std::move(*accepted), std::min(kHandshakeMs, options_.timeout_ms)));
  guest->since_ms = now_ms;
  guest->handshake.emplace(
      &kJoinProtocol, &secret_,
      [this, at = guest.get()](std::span<const std::byte> claim) { return Judge(at, claim); });
  guests_.push_back(std::move(guest));
}

void Rendezvous::AdvanceGuests(int64_t now_ms) {
  Accept(now_ms);
  for (std::unique_ptr<Guest>& guest : guests_) {
    if (Advance(guest.get(), now_ms)) {
      guest.reset();
    } else if (guest->handshake->is_done() && guest->stream.num_queued_bytes() == 0) {
      const int32_t rank = guest->claim->rank;
      if (rank_ == 0) {
        members_.emplace(rank, std::move(guest));
      } else {
        sockets_[static_cast<size_t>(rank)].emplace(std::move(guest->stream).TakeSocket());
        guest.reset();
      }
    }
  }
  std::erase(guests_, nullptr);
}

bool Rendezvous::Advance(Guest* guest, int64_t now_ms) {
  while (!guest->handshake->is_done()) {
    const StatusOr<std::optional<net::Frame>> frame =
        guest->stream.Read(kJoinProtocol.MaxBytes(), now_ms);
    if (!frame.ok()) return true;
    if (!*frame) break;
    const Status status = guest->handshake->Take(**frame, &guest->stream);
    if (status.ok()) continue;
    (void)guest->stream.Flush(now_ms);  // why it was refused
    refused_ = status.message();
    return true;
  }
  const bool is_sent = guest->stream.Flush(now_ms).ok();
  if (!guest->reason.empty()) refused_ = guest->reason;
  return !is_sent || now_ms - guest->since_ms > kHandshakeMs ||
         (!guest->reason.empty() && guest->stream.num_queued_bytes() == 0);
}

// Rank 0: once all have joined, lets them begin. One that has gone before that may come again.
Status Rendezvous::AdvanceMembers(int64_t now_ms) {
  std::erase_if(members_, [&](auto& member) {
    return !start_ && !member.second->stream.Read(/*max_bytes=*/1, now_ms).ok();
  });
  const auto num_ranks = static_cast<size_t>(options_.topology.num_ranks());
  if (!start_ && members_.size() + 1 == num_ranks) {
    start_ = {.number = options_.number, .places = std::vector<Start::Place>(num_ranks)};
    start_->places[0].host = options_.master.host();
    for (const auto& [rank, member] : members_) {
      PAGEMILL_ASSIGN_OR_RETURN(const net::NetAddress address,
                                member->stream.socket().peer_address());
      start_->places[static_cast<size_t>(rank)] = {address.host(), member->claim->port};
      start_->number = std::min(start_->number, member->claim->number);
    }
    for (const auto& [rank, member] : members_) member->stream.Queue(kStart, {Encode(*start_)});
  }
  if (!start_) return OkStatus();
  listener_.reset();
  guests_.clear();
  for (auto at = members_.begin(); at != members_.end();) {
    auto& [rank, member] = *at;
    if (!member->stream.Flush(now_ms).ok()) {
      return FailedPrecondition("rank " + std::to_string(rank) + " (" +
                                Node(options_.node_of(rank)) +
                                ") ended before all ranks had joined");
    }
    if (member->stream.num_queued_bytes() > 0) {
      ++at;
      continue;
    }
    if (std::ranges::count(peers_, rank) > 0) {
      sockets_[static_cast<size_t>(rank)].emplace(std::move(member->stream).TakeSocket());
    }
    at = members_.erase(at);
  }
  return OkStatus();
}

std::string Rendezvous::Missing() const {
  if (rank_ != 0 && !start_) {
    const auto master = hosts_.find(0);
    const bool joined = master != hosts_.end() && master->second.handshake.is_done();
    return (joined ? "node 0 waits for other nodes"
                   : "node 0 does not answer at " + options_.master.ToString());
  }
  std::string missing;
  for (int32_t rank = 0; rank < options_.topology.num_ranks(); ++rank) {
    const bool is_there =
        rank == rank_ || members_.contains(rank) || sockets_[static_cast<size_t>(rank)].has_value();
    if (is_there || (rank_ != 0 && !std::ranges::count(peers_, rank))) continue;
    missing += (missing.empty() ? "" : ", ") + std::to_string(rank) + " (" +
               Node(options_.node_of(rank)) + ")";
  }
  const std::string refused = refused_.empty() ? "" : "; the last that tried: " + refused_;
  const std::string where = rank_ == 0 ? " at " + options_.master.ToString() : "";
  return "of " + std::to_string(options_.topology.num_ranks()) + " ranks these have not joined" +
         where + ": " + missing + refused;
}

void Rendezvous::Wait(int64_t limit_ms) const {
  std::vector<pollfd> polled;
  if (listener_ && accepts_) {
    polled.push_back({.fd = listener_->fd(), .events = POLLIN, .revents = 0});
  }
  const auto add = [&polled](const net::FrameStream& stream) {
    polled.push_back({.fd = stream.fd(), .events = stream.events(), .revents = 0});
  };
  for (const auto& guest : guests_) add(guest->stream);
  for (const auto& [rank, host] : hosts_) add(host.stream);
  for (const auto& [rank, member] : members_) add(member->stream);
  (void)poll(polled.data(), polled.size(), static_cast<int>(limit_ms));
}

}  // namespace pagemill::comm
