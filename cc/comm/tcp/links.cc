#include "cc/comm/tcp/links.h"

#include <poll.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "cc/base/endian.h"

namespace pagemill::comm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kFarewell = 0;  // as the word of a call
constexpr uint64_t kIsDone = uint64_t{1} << 32;

template <size_t kBytes>
void WriteHead(uint64_t call, uint64_t number, std::array<std::byte, kBytes>* head) {
  StoreLittle64(call, head->data());
  StoreLittle64(number, head->data() + 8);
}

}  // namespace

Links::Links(std::vector<std::string> names, std::chrono::microseconds spin)
    : names_(std::move(names)), spin_(spin), links_(names_.size()) {}

void Links::Add(int32_t rank, net::TcpSocket socket) {
  link(rank).socket.emplace(std::move(socket));
}

Status Links::Exchange(std::span<const Outgoing> out, std::span<const Incoming> in) {
  flows_.clear();
  // What comes first: a farewell explains why nothing can be sent.
  for (const Incoming& each : in) {
    flows_.push_back({.rank = each.rank, .call = each.call, .data = each.data});
  }
  for (const Outgoing& each : out) {
    auto* data = const_cast<std::byte*>(each.data.data());
    flows_.push_back(
        {.rank = each.rank, .is_out = true, .call = each.call, .data = {data, each.data.size()}});
    WriteHead(each.call, each.data.size(), &flows_.back().head);
  }
  Clock::time_point moved_at = Clock::now();
  while (true) {
    bool moved = false, complete = true;
    for (Flow& flow : flows_) {
      if (flow.done == flow.size()) continue;
      PAGEMILL_RETURN_IF_ERROR(Advance(&flow, &moved));
      complete = complete && flow.done == flow.size();
    }
    if (complete) return OkStatus();
    const Clock::time_point now = Clock::now();
    if (moved) {
      moved_at = now;
    } else if (now - moved_at >= spin_) {
      Wait();
    } else {
      std::this_thread::yield();
    }
  }
}

Status Links::Advance(Flow* flow, bool* moved) {
  const StatusOr<size_t> bytes = Move(flow);
  if (!bytes.ok()) return Lost(flow->rank);
  if (*bytes == 0) return OkStatus();
  *moved = true;
  const bool had_head = flow->done >= kHeadBytes;
  flow->done += *bytes;
  Link& on = link(flow->rank);
  (flow->is_out ? on.sends : on.receives) = flow->done < flow->size();
  if (flow->is_out || had_head || flow->done < kHeadBytes) return OkStatus();
  return CheckHead(*flow);
}

StatusOr<size_t> Links::Move(Flow* flow) {
  net::TcpSocket& socket = *link(flow->rank).socket;
  const std::span<std::byte> head = std::span(flow->head).subspan(std::min(flow->done, kHeadBytes));
  const std::span<std::byte> data =
      flow->data.subspan(flow->done - std::min(flow->done, kHeadBytes));
  return flow->is_out ? socket.Send(head, data) : socket.Receive(head, data);
}

Status Links::CheckHead(const Flow& flow) {
  const uint64_t call = LoadLittle64(flow.head.data());
  const uint64_t number = LoadLittle64(flow.head.data() + 8);
  if (call == flow.call && number == flow.data.size()) return OkStatus();
  const uint64_t rank = number & ~kIsDone;
  if (call == kFarewell && rank < names_.size()) {
    return Ended({.rank = static_cast<int32_t>(rank), .is_done = (number & kIsDone) != 0});
  }
  ended_ = {.rank = flow.rank};
  return Internal(names_[static_cast<size_t>(flow.rank)] +
                  " has made another call than this one, or its data came damaged: the group has"
                  " ended");
}

// The connection is over. What had come before may still be read, and may say why.
Status Links::Lost(int32_t rank) {
  Link& on = link(rank);
  Head head;
  if (!on.receives) {
    const StatusOr<size_t> received = on.socket->Receive(head);
    const uint64_t number = LoadLittle64(head.data() + 8) & ~kIsDone;
    if (received.ok() && *received == kHeadBytes && LoadLittle64(head.data()) == kFarewell &&
        number < names_.size()) {
      return CheckHead({.rank = rank, .head = head});
    }
  }
  return Ended({.rank = rank});
}

Status Links::Ended(const Farewell& farewell) {
  ended_ = farewell;
  const std::string& name = names_[static_cast<size_t>(farewell.rank)];
  return Unavailable(name +
                     (farewell.is_done ? " has left the group" : " has died or left the group"));
}

void Links::Wait() const {
  std::vector<pollfd> polled;
  for (const Flow& flow : flows_) {
    if (flow.done == flow.size()) continue;
    const int fd = links_[static_cast<size_t>(flow.rank)].socket->fd();
    const short events = flow.is_out ? POLLOUT : POLLIN;  // NOLINT(google-runtime-int): of pollfd
    polled.push_back({.fd = fd, .events = events, .revents = 0});
  }
  (void)poll(polled.data(), polled.size(), -1);
}

std::optional<int32_t> Links::FindGone() const {
  for (size_t rank = 0; rank < links_.size(); ++rank) {
    if (!links_[rank].socket) continue;
    pollfd polled = {.fd = links_[rank].socket->fd(), .events = POLLRDHUP, .revents = 0};
    if (poll(&polled, 1, 0) != 1) continue;
    const int32_t first = first_to_end_.load();  // ShutDown() may have ended the connection
    return first == kNoRank ? static_cast<int32_t>(rank) : first;
  }
  return std::nullopt;
}

void Links::ShutDown(const Farewell& farewell) {
  int32_t none = kNoRank;
  if (!first_to_end_.compare_exchange_strong(none, farewell.rank)) return;
  Head head;
  WriteHead(kFarewell, static_cast<uint64_t>(farewell.rank) | (farewell.is_done ? kIsDone : 0),
            &head);
  for (Link& each : links_) {
    if (!each.socket) continue;
    if (!each.sends) (void)each.socket->Send(head);
    each.socket->ShutDown();
  }
}

}  // namespace pagemill::comm
