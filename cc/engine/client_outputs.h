// File: cc/engine/client_outputs.h
// The clients of an engine and the outputs that each of them has not read yet. Request ids of
// different clients may be equal: within the engine, an id carries the number of its client in the
// upper 16 bits, and outputs are returned with the client's own ids.
//
//   ClientOutputs clients;
//   PAGEMILL_ASSIGN_OR_RETURN(const ClientNumber client, clients.Open());
//   const std::optional<step::RequestId> id = ClientOutputs::EngineId(client, own_id);
//   clients.Enter(client);                           // a request was accepted
//   clients.Push(std::move(output), /*at_once=*/true, &place);  // of the request
//   clients.Signal(/*all=*/false, now, interval_ns, &to_wake);
//   UnreadOutputs unread = clients.Take(client);
//   std::vector<RequestOutput> outputs = std::move(unread).Expand();  // without the mutex
//
// Thread safety: none; the engine guards it. References to a client's `filled` stay valid, so that
// it can be notified without the engine's mutex.
#ifndef PAGEMILL_CC_ENGINE_CLIENT_OUTPUTS_H_
#define PAGEMILL_CC_ENGINE_CLIENT_OUTPUTS_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "cc/base/status.h"
#include "cc/base/strong_id.h"
#include "cc/engine/output_event.h"
#include "cc/engine/output_queue.h"
#include "cc/engine/request_output.h"
#include "cc/step/request.h"

namespace pagemill::engine {

// Reused after a client was closed and its last request has ended.
using ClientNumber = StrongId<struct ClientNumberTag, uint16_t>;

class ClientOutputs {
 public:
  static constexpr size_t kMaxClients = 1024;  // each has a file descriptor
  static constexpr uint64_t kMaxOwnId = (uint64_t{1} << 48) - 1;

  // Empty if `own` is above kMaxOwnId.
  static std::optional<step::RequestId> EngineId(ClientNumber client, step::RequestId own) {
    if (own.value() > kMaxOwnId) return std::nullopt;
    return step::RequestId(uint64_t{client.value()} << 48 | own.value());
  }
  static ClientNumber ClientOf(step::RequestId engine_id) {
    return ClientNumber(static_cast<uint16_t>(engine_id.value() >> 48));
  }
  static step::RequestId OwnId(step::RequestId engine_id) {
    return step::RequestId(engine_id.value() & kMaxOwnId);
  }

  // The lowest free number. kResourceExhausted if kMaxClients are open or have unfinished requests.
  StatusOr<ClientNumber> Open();
  // Drops what the client has not read, and outputs of its unfinished requests that come later.
  void Close(ClientNumber client);

  // Counts an accepted request; its last output ends it.
  void Enter(ClientNumber client) { ++clients_[client.value()].num_unfinished; }
  // Queue news for the client that their id names. `at_once`: the next Signal() does not wait for
  // the interval. `place` is the request's. False if the client is closed: they are dropped.
  bool Push(RequestOutput&& output, bool at_once, UnreadPlace* place);
  bool Push(const NewTokens& news, UnreadPlace* place);
  // Signals the descriptor of each client with new outputs if `all`, if one of them is to be
  // signalled at once, or if the interval since its last signal has elapsed. Adds the condition
  // variables of those clients to `to_wake`, to be notified without the mutex, which is what
  // threads that wake up take first. Times in nanoseconds.
  void Signal(bool all, int64_t now, int64_t interval_ns,
              std::vector<std::condition_variable*>* to_wake);

  // All that waits, with the client's own ids.
  UnreadOutputs Take(ClientNumber client);
  // True if the unread outputs of the request with this engine id and place include the end of a
  // turn.
  bool HasTurnEnd(step::RequestId id, const UnreadPlace& place) const {
    return clients_[ClientOf(id).value()].queue.HasTurnEnd(place);
  }

  bool empty(ClientNumber client) const { return clients_[client.value()].queue.empty(); }
  // Requests that ended and whose last output has not been read.
  size_t num_finished_unread(ClientNumber client) const {
    return clients_[client.value()].num_finished_unread;
  }
  size_t num_unread() const;  // requests with unread outputs, of all clients
  int fd(ClientNumber client) const { return clients_[client.value()].event->fd(); }
  // Notified after outputs came; by NotifyAll() for every client.
  std::condition_variable& filled(ClientNumber client) { return clients_[client.value()].filled; }
  void NotifyAll();

 private:
  struct Client {
    bool open = false;
    size_t num_unfinished = 0;
    size_t num_finished_unread = 0;
    OutputQueue queue;
    std::unique_ptr<OutputEvent> event;  // null if closed
    std::condition_variable filled;
    bool notify_pending = false;  // not signalled since outputs came
    bool at_once = false;
    int64_t notified = std::numeric_limits<int64_t>::min() / 2;  // when it was last signalled
  };

  std::deque<Client> clients_;  // by number; a deque does not move them
};

}  // namespace pagemill::engine

#endif  // PAGEMILL_CC_ENGINE_CLIENT_OUTPUTS_H_
