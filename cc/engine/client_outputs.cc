#include "cc/engine/client_outputs.h"

#include <string>
#include <utility>

namespace pagemill::engine {

StatusOr<ClientNumber> ClientOutputs::Open() {
  size_t number = 0;
  while (number < clients_.size() &&
         (clients_[number].open || clients_[number].num_unfinished > 0)) {
    ++number;
  }
  if (number == kMaxClients) {
    return ResourceExhausted("the engine has " + std::to_string(kMaxClients) +
                             " clients, as many as it can have; close one");
  }
  if (number == clients_.size()) clients_.emplace_back();
  Client& client = clients_[number];
  client.event = std::make_unique<OutputEvent>();
  client.open = true;
  return ClientNumber(static_cast<uint16_t>(number));
}

void ClientOutputs::Close(ClientNumber number) {
  Client& client = clients_[number.value()];
  client.open = client.notify_pending = client.at_once = false;
  client.num_finished_unread = 0;
  client.event.reset();
  (void)client.queue.TakeAll();
}

bool ClientOutputs::Push(RequestOutput&& output, bool at_once, UnreadPlace* place) {
  Client& client = clients_[ClientOf(output.request_id).value()];
  if (output.finished()) --client.num_unfinished;
  if (!client.open) return false;
  if (output.finished()) ++client.num_finished_unread;
  if (client.queue.empty()) client.notify_pending = true;
  client.at_once = client.at_once || at_once;
  output.request_id = OwnId(output.request_id);
  client.queue.Push(std::move(output), place);
  return true;
}

bool ClientOutputs::Push(const NewTokens& news, UnreadPlace* place) {
  Client& client = clients_[ClientOf(news.request_id).value()];
  if (!client.open) return false;
  if (client.queue.empty()) client.notify_pending = true;
  client.queue.Push({.request_id = OwnId(news.request_id),
                     .token_ids = news.token_ids,
                     .num_cached_tokens = news.num_cached_tokens},
                    place);
  return true;
}

void ClientOutputs::Signal(bool all, int64_t now, int64_t interval_ns,
                           std::vector<std::condition_variable*>* to_wake) {
  for (Client& client : clients_) {
    const bool at_once = std::exchange(client.at_once, false) || all;
    if (!client.notify_pending) continue;
    if (!at_once && now - client.notified < interval_ns) continue;
    client.notify_pending = false;
    client.notified = now;
    client.event->Set();
    to_wake->push_back(&client.filled);
  }
}

UnreadOutputs ClientOutputs::Take(ClientNumber number) {
  Client& client = clients_[number.value()];
  if (client.queue.empty()) return {};
  client.event->Clear();
  client.notify_pending = false;
  client.num_finished_unread = 0;
  return client.queue.TakeAll();
}

size_t ClientOutputs::num_unread() const {
  size_t count = 0;
  for (const Client& client : clients_) count += client.queue.size();
  return count;
}

void ClientOutputs::NotifyAll() {
  for (Client& client : clients_) client.filled.notify_all();
}

}  // namespace pagemill::engine
