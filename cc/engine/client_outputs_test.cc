#include "cc/engine/client_outputs.h"

#include <poll.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace pagemill::engine {
namespace {

using step::FinishReason;
using step::RequestId;

constexpr int64_t kInterval = 1000;

RequestOutput Tokens(RequestId id, std::vector<int32_t> tokens) {
  RequestOutput output;
  output.request_id = id;
  output.new_token_ids = std::move(tokens);
  return output;
}

RequestOutput End(RequestId id) {
  RequestOutput output = Tokens(id, {});
  output.finish_reason = FinishReason::kStop;
  return output;
}

RequestId Id(ClientNumber client, uint64_t own) {
  return *ClientOutputs::EngineId(client, RequestId(own));
}

bool Readable(int fd) {
  pollfd poll_fd{.fd = fd, .events = POLLIN, .revents = 0};
  return poll(&poll_fd, 1, 0) == 1;
}

size_t Signal(ClientOutputs* clients, bool all, int64_t now) {
  std::vector<std::condition_variable*> to_wake;
  clients->Signal(all, now, kInterval, &to_wake);
  return to_wake.size();
}

// Clients with the places of requests.
class Clients : public ClientOutputs {
 public:
  bool Push(RequestOutput output, bool at_once) {
    UnreadPlace* place = &places_[output.request_id];
    if (!at_once && !output.finished()) {
      return ClientOutputs::Push({output.request_id, output.new_token_ids}, place);
    }
    return ClientOutputs::Push(std::move(output), at_once, place);
  }

  std::vector<RequestOutput> Take(ClientNumber client) {
    return ClientOutputs::Take(client).Expand();
  }

 private:
  std::map<RequestId, UnreadPlace> places_;
};

TEST(ClientOutputs, IdsCarryTheirClient) {
  const ClientNumber client(513);
  const RequestId id = Id(client, ClientOutputs::kMaxOwnId);
  EXPECT_EQ(ClientOutputs::ClientOf(id), client);
  EXPECT_EQ(ClientOutputs::OwnId(id), RequestId(ClientOutputs::kMaxOwnId));
  EXPECT_EQ(Id(ClientNumber(0), 7), RequestId(7));
  EXPECT_FALSE(ClientOutputs::EngineId(client, RequestId(ClientOutputs::kMaxOwnId + 1)));
}

TEST(ClientOutputs, EachClientReadsItsOwn) {
  Clients clients;
  const ClientNumber a = *clients.Open(), b = *clients.Open();
  clients.Enter(a);
  clients.Enter(b);
  EXPECT_TRUE(clients.Push(Tokens(Id(a, 5), {1}), false));
  EXPECT_TRUE(clients.Push(End(Id(b, 5)), false));
  EXPECT_EQ(clients.num_unread(), 2u);
  EXPECT_EQ(clients.num_finished_unread(a), 0u);
  EXPECT_EQ(clients.num_finished_unread(b), 1u);

  const std::vector<RequestOutput> of_b = clients.Take(b);
  ASSERT_EQ(of_b.size(), 1u);
  EXPECT_EQ(of_b[0].request_id, RequestId(5));
  EXPECT_TRUE(of_b[0].finished());
  EXPECT_EQ(clients.num_finished_unread(b), 0u);
  EXPECT_FALSE(clients.empty(a));
  EXPECT_EQ(clients.Take(a)[0].new_token_ids, std::vector<int32_t>{1});
}

TEST(ClientOutputs, OneClientsFirstTokenDoesNotSignalAnother) {
  Clients clients;
  const ClientNumber a = *clients.Open(), b = *clients.Open();
  clients.Push(Tokens(Id(a, 1), {1}), false);
  EXPECT_EQ(Signal(&clients, false, 10'000), 1u);  // nothing was signalled before
  (void)clients.Take(a);
  if (clients.fd(a) >= 0) {
    EXPECT_FALSE(Readable(clients.fd(a)));
  }

  clients.Push(Tokens(Id(a, 1), {2}), false);
  clients.Push(Tokens(Id(b, 1), {3}), true);
  EXPECT_EQ(Signal(&clients, false, 10'500), 1u);
  if (clients.fd(a) >= 0) {
    EXPECT_FALSE(Readable(clients.fd(a)));
    EXPECT_TRUE(Readable(clients.fd(b)));
  }
  EXPECT_EQ(Signal(&clients, false, 10'999), 0u);
  EXPECT_EQ(Signal(&clients, false, 11'000), 1u);  // a's interval has elapsed
  EXPECT_EQ(Signal(&clients, true, 11'001), 0u);   // both were signalled
}

TEST(ClientOutputs, ANumberIsReusedAfterTheLastRequestOfAClosedClient) {
  Clients clients;
  const ClientNumber a = *clients.Open();
  clients.Enter(a);
  clients.Push(Tokens(Id(a, 1), {1}), true);
  clients.Close(a);
  EXPECT_EQ(clients.num_unread(), 0u);
  EXPECT_EQ(Signal(&clients, true, 0), 0u);
  const ClientNumber b = *clients.Open();
  EXPECT_NE(a, b);
  EXPECT_FALSE(clients.Push(End(Id(a, 1)), true));
  EXPECT_EQ(*clients.Open(), a);
  EXPECT_TRUE(clients.empty(a));
}

TEST(ClientOutputs, ClientsAreBounded) {
  Clients clients;
  std::optional<StatusCode> refused;
  for (size_t i = 0; i <= ClientOutputs::kMaxClients && !refused; ++i) {
    const StatusOr<ClientNumber> opened = clients.Open();
    if (!opened.ok()) refused = opened.status().code();
  }
  EXPECT_EQ(refused, StatusCode::kResourceExhausted);
  clients.Close(ClientNumber(3));
  EXPECT_EQ(*clients.Open(), ClientNumber(3));
}

// Beside a plain model: of each client, the tokens of each request in order, and whether it ended.
TEST(ClientOutputs, RandomSequencesLoseNothing) {
  std::mt19937 random(7);
  Clients clients;
  struct Expected {
    std::vector<int32_t> tokens;
    bool ended = false;
  };
  std::map<ClientNumber, std::map<uint64_t, Expected>> unread;
  std::map<ClientNumber, std::vector<uint64_t>> running;
  uint64_t next_id = 1;
  for (int i = 0; i < 20'000; ++i) {
    const uint32_t what = random() % 100;
    if (what < 2 && unread.size() < 5) {
      const ClientNumber opened = *clients.Open();
      ASSERT_FALSE(unread.contains(opened));
      unread[opened], running[opened];
      continue;
    }
    if (unread.empty()) continue;
    auto it = unread.begin();
    std::advance(it, random() % unread.size());
    const ClientNumber client = it->first;
    std::vector<uint64_t>& live = running[client];
    if (what < 3) {
      clients.Close(client);
      // Its requests end before the number is used again.
      for (uint64_t id : live) EXPECT_FALSE(clients.Push(End(Id(client, id)), true));
      unread.erase(client);
      running.erase(client);
    } else if (what < 20) {
      clients.Enter(client);
      live.push_back(next_id++);
    } else if (what < 75 && !live.empty()) {
      const uint64_t id = live[random() % live.size()];
      const auto token = static_cast<int32_t>(random() % 100);
      ASSERT_TRUE(clients.Push(Tokens(Id(client, id), {token}), random() % 2 == 0));
      it->second[id].tokens.push_back(token);
    } else if (what < 85 && !live.empty()) {
      ASSERT_TRUE(clients.Push(End(Id(client, live.back())), true));
      it->second[live.back()].ended = true;
      live.pop_back();
    } else {
      Signal(&clients, false, i * 100);
      const auto ended = std::count_if(it->second.begin(), it->second.end(),
                                       [](const auto& entry) { return entry.second.ended; });
      ASSERT_EQ(clients.num_finished_unread(client), static_cast<size_t>(ended));
      std::map<uint64_t, Expected> taken;
      for (const RequestOutput& output : clients.Take(client)) {
        taken[output.request_id.value()] = {output.new_token_ids, output.finished()};
      }
      ASSERT_EQ(taken.size(), it->second.size());
      for (const auto& [id, expected] : it->second) {
        ASSERT_EQ(taken[id].tokens, expected.tokens);
        ASSERT_EQ(taken[id].ended, expected.ended);
      }
      it->second.clear();
    }
  }
}

}  // namespace
}  // namespace pagemill::engine
