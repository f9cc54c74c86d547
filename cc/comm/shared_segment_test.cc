#include "cc/comm/shared_segment.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <string>

namespace pagemill::comm {
namespace {

TEST(SharedSegmentTest, OpenMapsTheMemoryThatCreateMade) {
  const auto created = SharedSegment::Create(
      {.topology = {.data = 2, .pipeline = 1, .tensor = 3}, .slot_bytes = 192});
  ASSERT_TRUE(created.ok()) << created.status().ToString();
  const auto opened = SharedSegment::Open((*created)->fd());
  ASSERT_TRUE(opened.ok()) << opened.status().ToString();
  EXPECT_EQ((*opened)->topology().data, 2);
  EXPECT_EQ((*opened)->topology().tensor, 3);
  EXPECT_EQ((*opened)->slot_bytes(), 192);
  EXPECT_EQ((*opened)->fd(), -1);
  // Visits lanes and slots of all ranks and axes, each with a unique number.
  const auto for_each = [](const SharedSegment& segment, const auto& visit) {
    uint32_t number = 0;
    for (int32_t rank = 0; rank < segment.topology().num_ranks(); ++rank) {
      for (Axis axis : {Axis::kTensor, Axis::kData, Axis::kExpert}) {
        const int32_t members = segment.topology().Size(axis);
        for (LaneIndex index; index.value < 1 + 2 * members; ++index.value) {
          const bool has_slots = index.value < 1 + members;
          visit(&segment.lane(rank, axis, index),
                has_slots ? segment.slots(rank, axis, index) : nullptr, ++number);
        }
      }
    }
  };
  for_each(**created, [](Lane* lane, std::byte* slots, uint32_t number) {
    lane->begun.store(number);
    if (slots != nullptr) std::memset(slots, static_cast<int>(number % 251), 2 * 192);
  });
  for_each(**opened, [](Lane* lane, std::byte* slots, uint32_t number) {
    EXPECT_EQ(lane->begun.load(), number);
    if (slots == nullptr) return;
    EXPECT_EQ(slots[0], static_cast<std::byte>(number % 251));
    EXPECT_EQ(slots[2 * 192 - 1], static_cast<std::byte>(number % 251));
  });
}

TEST(SharedSegmentTest, OptionsOutsideTheirRangeAreNamed) {
  EXPECT_EQ(SharedSegment::Create({.topology = {.tensor = 65}}).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(SharedSegment::Create({.slot_bytes = 100}).status().message(),
            "slot_bytes is 100; it must be a multiple of 64 from 64 to 67108864");
}

TEST(SharedSegmentTest, OpenRefusesWhatIsNoSegment) {
  EXPECT_EQ(SharedSegment::Open(-1).status().code(), StatusCode::kInvalidArgument);
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  EXPECT_EQ(SharedSegment::Open(null).status().message(),
            "descriptor " + std::to_string(null) +
                " is not a shared segment of this version of Pagemill");
  close(null);
}

}  // namespace
}  // namespace pagemill::comm
