#include "cc/scheduler/policies/priority.h"

#include <algorithm>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace pagemill::scheduler {
namespace {

std::unique_ptr<RequestState> Make(uint64_t arrival, int32_t priority) {
  step::Request request;
  request.id = step::RequestId(arrival);
  request.prompt_token_ids = {1};
  request.priority = priority;
  auto state = std::make_unique<RequestState>(std::move(request));
  state->arrival = arrival;
  return state;
}

TEST(Priority, SmallestFirstThenFirstComeFirstServed) {
  Priority policy;
  const auto late = Make(1, 5), early = Make(2, -3), second = Make(3, -3);
  EXPECT_EQ(policy.Next(), nullptr);
  for (const auto& r : {&second, &late, &early}) policy.Insert(r->get());
  EXPECT_EQ(policy.Next(), early.get());
  policy.Remove(early.get());
  EXPECT_EQ(policy.Next(), second.get());
  policy.Remove(second.get());
  policy.Insert(early.get());  // preempted: back at its old place
  EXPECT_EQ(policy.Next(), early.get());
  policy.Remove(early.get());
  EXPECT_EQ(policy.Next(), late.get());
}

TEST(Priority, PreemptsWorsePriorityButNotEquals) {
  const Priority policy;
  const auto old = Make(1, 0), equal = Make(2, 0), worse = Make(3, 1);
  EXPECT_TRUE(policy.Preempts(*old, *worse));
  EXPECT_FALSE(policy.Preempts(*old, *equal));
  EXPECT_FALSE(policy.Preempts(*worse, *old));
  EXPECT_TRUE(policy.RunsBefore(*old, *equal));
  EXPECT_TRUE(policy.RunsBefore(*equal, *worse));
  EXPECT_FALSE(policy.RunsBefore(*worse, *old));
}

TEST(Priority, TheVictimIsTheWorstAndAmongThoseTheYoungest) {
  const Priority policy;
  std::vector<std::unique_ptr<RequestState>> states;
  for (auto [arrival, priority] : {std::pair{1, 2}, {2, 0}, {3, 2}, {4, 1}}) {
    states.push_back(Make(static_cast<uint64_t>(arrival), priority));
  }
  std::vector<RequestState*> running;
  for (const auto& state : states) {  // as the scheduler places what starts
    const auto after = std::find_if(running.begin(), running.end(), [&](const RequestState* r) {
      return policy.RunsBefore(*state, *r);
    });
    running.insert(after, state.get());
  }
  EXPECT_EQ(running[policy.Victim(running)]->arrival, 3u);
}

TEST(Priority, AHundredThousandWaitingComeOutInOrder) {
  constexpr uint64_t kCount = 100'000;
  Priority policy;
  std::mt19937 random(7);
  std::vector<std::unique_ptr<RequestState>> states;
  std::vector<std::pair<int32_t, uint64_t>> expected;
  for (uint64_t i = 0; i < kCount; ++i) {
    states.push_back(Make(i, static_cast<int32_t>(random() % 50) - 25));
    policy.Insert(states.back().get());
  }
  for (uint64_t i = 0; i < kCount; ++i) {
    if (i % 3 == 0) {
      policy.Remove(states[i].get());  // aborted
    } else {
      expected.emplace_back(states[i]->request->priority, i);
    }
  }
  std::sort(expected.begin(), expected.end());
  for (const auto& [priority, arrival] : expected) {
    RequestState* next = policy.Next();
    ASSERT_NE(next, nullptr);
    ASSERT_EQ(next->arrival, arrival);
    policy.Remove(next);
  }
  EXPECT_EQ(policy.Next(), nullptr);
}

}  // namespace
}  // namespace pagemill::scheduler
