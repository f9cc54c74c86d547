#include "cc/scheduler/policies/fair.h"

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace pagemill::scheduler {
namespace {

// Slots that serve one token of each running request a turn, as a scheduler does.
class Server {
 public:
  Server(const TenantWeights& weights, size_t num_slots) : policy(weights), num_slots_(num_slots) {}

  uint64_t Add(const std::string& tenant, int32_t prompt_size, int32_t num_output_tokens) {
    step::Request request;
    request.tenant = tenant;
    request.prompt_token_ids = std::vector<int32_t>(static_cast<size_t>(prompt_size), 1);
    request.sampling.max_tokens = num_output_tokens;
    auto state = std::make_unique<RequestState>(std::move(request));
    state->arrival = num_arrivals_++;
    policy.Insert(state.get());
    ++waiting[tenant];
    const uint64_t arrival = state->arrival;
    requests_[arrival] = std::move(state);
    return arrival;
  }

  // Arrivals of the requests that started in this turn.
  std::vector<uint64_t> Turn() {
    std::vector<uint64_t> started;
    while (running.size() < num_slots_ && policy.Next() != nullptr) {
      RequestState* request = policy.Next();
      policy.Remove(request);
      Charge(*request, request->prompt_size);
      running.push_back(request);
      --waiting[request->request->tenant];
      started.push_back(request->arrival);
    }
    std::vector<RequestState*> left;
    for (RequestState* request : running) {
      Charge(*request, 1);
      request->output_token_ids.push_back(0);
      if (static_cast<int32_t>(request->output_token_ids.size()) <
          request->request->sampling.max_tokens) {
        left.push_back(request);
      } else {
        policy.Forget(*request);
        requests_.erase(request->arrival);
      }
    }
    running = std::move(left);
    return started;
  }

  Fair policy;
  std::vector<RequestState*> running;
  std::map<std::string, int64_t> served;
  std::map<std::string, int64_t> waiting;

 private:
  void Charge(const RequestState& request, int32_t num_tokens) {
    policy.Charge(request, num_tokens);
    served[request.request->tenant] += num_tokens;
  }

  const size_t num_slots_;
  uint64_t num_arrivals_ = 0;
  std::map<uint64_t, std::unique_ptr<RequestState>> requests_;
};

TEST(Fair, FirstComeFirstServedWithinATenant) {
  Server server({}, 1);
  for (int i = 0; i < 5; ++i) server.Add("a", 3, 1);
  for (uint64_t i = 0; i < 5; ++i) EXPECT_EQ(server.Turn(), std::vector<uint64_t>{i});
}

TEST(Fair, WeightsAreKeptWithinTheStatedBound) {
  constexpr int32_t kSlots = 6, kMaxPrompt = 60, kMaxOutput = 40;
  const TenantWeights weights = {{"b", 2}, {"c", 5}};  // "a" has weight 1
  Server server(weights, kSlots);
  std::mt19937 random(11);
  // Sizes differ between the tenants: shares are counted in tokens, not in requests.
  const auto add = [&](const std::string& tenant) {
    const uint32_t part = tenant == "c" ? 4 : 1;
    server.Add(tenant, 1 + static_cast<int32_t>(random() % (kMaxPrompt / part)),
               1 + static_cast<int32_t>(random() % (kMaxOutput / part)));
  };
  const std::vector<std::pair<std::string, int32_t>> tenants = {{"a", 1}, {"b", 2}, {"c", 5}};
  for (int turn = 0; turn < 20'000; ++turn) {
    for (const auto& [tenant, weight] : tenants) {
      while (server.waiting[tenant] < kSlots) add(tenant);
    }
    server.Turn();
    ASSERT_TRUE(server.policy.CheckIntegrity().ok());
    for (const auto& [one, w1] : tenants) {
      for (const auto& [other, w2] : tenants) {
        const double ahead = static_cast<double>(server.served[one]) / w1 -
                             static_cast<double>(server.served[other]) / w2;
        ASSERT_LE(ahead, kSlots * (kMaxPrompt + kMaxOutput) / std::min(w1, w2)) << one << other;
      }
    }
  }
  const auto total =
      static_cast<double>(server.served["a"] + server.served["b"] + server.served["c"]);
  EXPECT_NEAR(static_cast<double>(server.served["a"]) / total, 1.0 / 8, 0.01);
  EXPECT_NEAR(static_cast<double>(server.served["c"]) / total, 5.0 / 8, 0.01);
}

TEST(Fair, NobodyStarvesBehindAHundredThousandRequestsOfAnother) {
  Server server({{"flood", kMaxTenantWeight}}, 4);
  for (int i = 0; i < 100'000; ++i) server.Add("flood", 8, 2);
  for (int i = 0; i < 1000; ++i) server.Turn();
  const uint64_t lonely = server.Add("lonely", 500, 1);
  // Level with the tenant chosen last: it is next, or one request of the flood is.
  bool started = false;
  for (int turn = 0; turn < 3 && !started; ++turn) {
    for (uint64_t arrival : server.Turn()) started = started || arrival == lonely;
  }
  EXPECT_TRUE(started);
  EXPECT_TRUE(server.policy.CheckIntegrity().ok());
}

TEST(Fair, EveryRequestStartsAmongManyTenants) {
  Server server({{"t0", 50}}, 3);
  std::map<uint64_t, int> added_at;
  int longest_wait = 0;
  for (int turn = 0; turn < 5000; ++turn) {
    const std::string tenant = "t" + std::to_string(turn % 7 == 0 ? turn % 5 : 0);
    if (turn < 4000) added_at[server.Add(tenant, 5, 3)] = turn;
    for (uint64_t arrival : server.Turn()) {
      longest_wait = std::max(longest_wait, turn - added_at.at(arrival));
      added_at.erase(arrival);
    }
  }
  EXPECT_TRUE(added_at.empty());
  EXPECT_LT(longest_wait, 100);
}

TEST(Fair, AnIdleTenantSavesNoCreditButKeepsItsDebt) {
  Server server({}, 1);
  server.Add("worker", 10, 990);
  for (int i = 0; i < 990; ++i) server.Turn();
  // It has no requests, and 1,000 tokens more than those who never came.
  EXPECT_EQ(server.policy.served_tokens("worker"), 1000);
  server.Add("worker", 1, 1);  // arrival 1
  for (int i = 0; i < 12; ++i) server.Add("sleeper", 99, 1);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(server.Turn()[0], static_cast<uint64_t>(2 + i));
  EXPECT_EQ(server.Turn()[0], 1u) << "1,000 tokens each: the earlier one in the queue is next";

  // The sleeper's 1,000 tokens are its own; what others get while it sleeps it does not get later.
  while (!server.running.empty() || server.policy.Next() != nullptr) server.Turn();
  for (int i = 0; i < 20; ++i) server.Add("worker", 499, 1);
  for (int i = 0; i < 10; ++i) server.Turn();
  server.Add("sleeper", 499, 1);
  server.Add("sleeper", 499, 1);
  int worker_before_second = 0;
  for (int i = 0, seen = 0; i < 5 && seen < 2; ++i) {
    const bool worker = server.Turn()[0] < 34;
    (worker ? worker_before_second : seen) += 1;
  }
  EXPECT_GE(worker_before_second, 1);
}

TEST(Fair, TheTenantMostOverItsShareGivesWayWithItsYoungest) {
  Server server({{"paid", 4}}, 4);
  server.Add("paid", 100, 50);
  server.Add("free", 40, 50);
  server.Add("paid", 100, 50);
  server.Add("free", 40, 50);
  server.Turn();
  ASSERT_EQ(server.running.size(), 4u);
  // 80 tokens for weight 1 are more than 200 for weight 4.
  EXPECT_EQ(server.running[server.policy.Victim(server.running)]->arrival, 3u);
  EXPECT_EQ(server.policy.Victim(std::span(server.running).first(1)), 0u);
}

TEST(Fair, DebtsOfIdleTenantsAreBounded) {
  Server server({}, 1);
  server.Add("anchor", 1, 1);  // stays waiting at a low level
  std::vector<std::string> names;
  for (int i = 0; i < 3000; ++i) {
    server.Add("t" + std::to_string(i), 1 + i % 100, 1);
  }
  while (server.policy.Next() != nullptr) server.Turn();
  EXPECT_LE(server.policy.num_tenants(), Fair::kMaxIdleTenants + 1);
  EXPECT_TRUE(server.policy.CheckIntegrity().ok());
  EXPECT_EQ(server.policy.served_tokens("t2999"), 101) << "the largest debts are kept";
}

TEST(Fair, ADebtIsForgottenWhenTheOthersHaveCaughtUp) {
  Server server({}, 1);
  server.Add("early", 9, 1);
  server.Turn();
  EXPECT_EQ(server.policy.num_tenants(), 1u);
  for (int i = 0; i < 5; ++i) server.Add("late", 9, 1);
  for (int i = 0; i < 5; ++i) server.Turn();
  EXPECT_EQ(server.policy.served_tokens("early"), 0);
  EXPECT_EQ(server.policy.num_tenants(), 1u);
}

TEST(Fair, RandomUseKeepsItsInvariants) {
  Server server({{"t1", 3}, {"t2", 7}}, 3);
  std::mt19937 random(5);
  for (int i = 0; i < 20'000; ++i) {
    if (random() % 3 != 0) {
      server.Add("t" + std::to_string(random() % 9), 1 + static_cast<int32_t>(random() % 9),
                 1 + static_cast<int32_t>(random() % 5));
    }
    server.Turn();
    if (!server.running.empty() && random() % 10 == 0) {  // preempted
      const size_t victim = server.policy.Victim(server.running);
      RequestState* request = server.running[victim];
      server.running.erase(server.running.begin() + static_cast<ptrdiff_t>(victim));
      ++server.waiting[request->request->tenant];
      server.policy.Insert(request);
    }
    ASSERT_TRUE(server.policy.CheckIntegrity().ok());
  }
}

}  // namespace
}  // namespace pagemill::scheduler
