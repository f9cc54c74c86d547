#include "cc/scheduler/request_queue.h"

#include <map>
#include <memory>
#include <random>

#include "gtest/gtest.h"

namespace pagemill::scheduler {
namespace {

TEST(RequestQueue, KeepsTheOrderOfArrivalUnderRandomChanges) {
  RequestQueue queue;
  std::map<uint64_t, std::unique_ptr<RequestState>> members, outside;
  std::mt19937 random(3);
  uint64_t arrivals = 0;
  const auto pick = [&random](auto& from) {
    return std::next(from.begin(), static_cast<ptrdiff_t>(random() % from.size()));
  };
  for (int i = 0; i < 20000; ++i) {
    const uint32_t dice = random() % 4;
    if (dice == 0 && members.size() < 20) {
      auto request = std::make_unique<RequestState>(step::Request());
      request->arrival = arrivals++;
      queue.Insert(request.get());
      members[request->arrival] = std::move(request);
    } else if (dice == 1 && !outside.empty()) {  // comes back, anywhere
      auto node = outside.extract(pick(outside));
      queue.Insert(node.mapped().get());
      members.insert(std::move(node));
    } else if (dice >= 2 && !members.empty()) {
      auto node = members.extract(dice == 2 ? members.begin() : pick(members));
      queue.Remove(node.mapped().get());
      if (outside.size() < 5) outside.insert(std::move(node));
    }
    ASSERT_TRUE(queue.CheckIntegrity().ok());
    ASSERT_EQ(queue.size(), members.size());
    ASSERT_EQ(queue.front(), members.empty() ? nullptr : members.begin()->second.get());
  }
}

}  // namespace
}  // namespace pagemill::scheduler
