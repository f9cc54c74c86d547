#include "cc/scheduler/resources/adapter_slots.h"

#include <algorithm>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace pagemill::scheduler {
namespace {

using step::AdapterId;

std::unique_ptr<RequestState> Make(uint64_t arrival, uint64_t adapter) {
  step::Request request;
  request.prompt_token_ids = {1};
  request.adapter = AdapterId(adapter);
  auto state = std::make_unique<RequestState>(std::move(request));
  state->arrival = arrival;
  return state;
}

std::vector<RequestState*> Wake(AdapterSlots* slots) {
  std::vector<RequestState*> awake;
  slots->Wake(&awake);
  for (RequestState* request : awake) slots->StopWaiting(request);
  return awake;
}

TEST(AdapterSlots, BoundsTheDifferentAdapters) {
  AdapterSlots slots(2);
  for (uint64_t adapter : {7, 9}) {
    EXPECT_TRUE(slots.CanStart(AdapterId(adapter)));
    slots.Start(AdapterId(adapter));
  }
  slots.Start(AdapterId(7));
  EXPECT_FALSE(slots.CanStart(AdapterId(8)));
  EXPECT_TRUE(slots.CanStart(AdapterId(9)));
  EXPECT_TRUE(slots.CanStart(step::kNoAdapter));
  slots.Stop(AdapterId(7));
  EXPECT_FALSE(slots.CanStart(AdapterId(8))) << "another request runs with 7";
  slots.Stop(AdapterId(7));
  EXPECT_TRUE(slots.CanStart(AdapterId(8)));
  EXPECT_EQ(slots.num_used(), 1u);
}

TEST(AdapterSlots, AFreeSlotWakesTheOldestOfEachAdapter) {
  AdapterSlots slots(1);
  slots.Start(AdapterId(1));
  const auto a = Make(5, 2), b = Make(3, 2), c = Make(4, 3);
  for (const auto& request : {&a, &b, &c}) slots.Wait(request->get());
  EXPECT_TRUE(Wake(&slots).empty());
  slots.Stop(AdapterId(1));
  EXPECT_EQ(Wake(&slots), (std::vector<RequestState*>{b.get(), c.get()}));
  EXPECT_EQ(slots.num_waiting(), 1u);
  // Adapter 2 is chosen: all that wait for it may start.
  slots.Start(AdapterId(2));
  EXPECT_EQ(Wake(&slots), std::vector<RequestState*>{a.get()});
  EXPECT_TRUE(slots.CheckIntegrity().ok());
}

TEST(AdapterSlots, TheNextIsWokenWhereTheOldestIsGone) {
  AdapterSlots slots(1);
  slots.Start(AdapterId(1));
  const auto a = Make(1, 2), b = Make(2, 2);
  slots.Wait(a.get());
  slots.Wait(b.get());
  slots.Stop(AdapterId(1));
  EXPECT_EQ(Wake(&slots), std::vector<RequestState*>{a.get()});
  slots.Forget(AdapterId(2));  // aborted while it was queued
  EXPECT_EQ(Wake(&slots), std::vector<RequestState*>{b.get()});
}

TEST(AdapterSlots, AStreamForTheAdaptersAtHandStarvesNobody) {
  AdapterSlots slots(2);
  for (uint64_t adapter : {1, 1, 1, 2}) slots.Start(AdapterId(adapter));
  const auto passed = Make(1, 3);
  slots.Wait(passed.get());
  int32_t starts = 0;
  for (; slots.CanStart(AdapterId(2)) && starts < 1000; ++starts) {  // one ends, the next starts
    slots.Start(AdapterId(2));
    slots.Stop(AdapterId(2));
  }
  EXPECT_EQ(starts, AdapterSlots::kPatience);
  EXPECT_TRUE(slots.CanStart(AdapterId(1))) << "the one with the fewest requests is closed";
  EXPECT_TRUE(Wake(&slots).empty());
  slots.Stop(AdapterId(2));
  EXPECT_EQ(Wake(&slots), std::vector<RequestState*>{passed.get()});
  slots.Start(AdapterId(3));
  EXPECT_TRUE(slots.CheckIntegrity().ok());
}

TEST(AdapterSlots, AClosedAdapterOpensWhenNobodyWaits) {
  AdapterSlots slots(1);
  slots.Start(AdapterId(1));
  const auto passed = Make(1, 3);
  slots.Wait(passed.get());
  for (int32_t i = 0; i < AdapterSlots::kPatience; ++i) slots.Start(AdapterId(1));
  EXPECT_FALSE(slots.CanStart(AdapterId(1)));
  slots.StopWaiting(passed.get());  // aborted
  EXPECT_TRUE(slots.CanStart(AdapterId(1)));
}

TEST(AdapterSlots, RandomUseStartsEverybody) {
  AdapterSlots slots(3);
  std::mt19937 random(9);
  std::vector<std::unique_ptr<RequestState>> requests;
  std::vector<RequestState*> queue, running;  // queue: not parked
  size_t num_started = 0;
  for (int i = 0; i < 30'000; ++i) {
    if (i < 20'000 && random() % 4 == 0) {
      requests.push_back(Make(requests.size(), static_cast<int32_t>(random() % 7)));
      queue.push_back(requests.back().get());
    }
    const std::vector<RequestState*> awake = Wake(&slots);
    queue.insert(queue.end(), awake.begin(), awake.end());
    std::sort(queue.begin(), queue.end(),
              [](const RequestState* a, const RequestState* b) { return a->arrival < b->arrival; });
    while (!queue.empty() && running.size() < 5) {
      RequestState* request = queue.front();
      queue.erase(queue.begin());
      if (!slots.CanStart(request->request->adapter)) {
        slots.Wait(request);
        continue;
      }
      slots.Start(request->request->adapter);
      running.push_back(request);
      ++num_started;
    }
    if (!running.empty() && random() % 2 == 0) {
      const size_t at = random() % running.size();
      slots.Stop(running[at]->request->adapter);
      running.erase(running.begin() + static_cast<ptrdiff_t>(at));
    }
    const Status status = slots.CheckIntegrity();
    ASSERT_TRUE(status.ok()) << status.ToString();
  }
  EXPECT_EQ(num_started, requests.size());
  EXPECT_EQ(slots.num_waiting(), 0u);
}

}  // namespace
}  // namespace pagemill::scheduler
