#include "cc/comm/shared_segment.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

namespace pagemill::comm {
namespace {

TEST(SharedSegmentTest, OpenMapsTheMemoryThatCreateMade) {
  const auto made = SharedSegment::Create({.num_ranks = 3, .slot_bytes = 192});
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  const auto opened = SharedSegment::Open((*made)->fd());
  ASSERT_TRUE(opened.ok()) << opened.status().ToString();
  EXPECT_EQ((*opened)->num_ranks(), 3);
  EXPECT_EQ((*opened)->slot_bytes(), 192);
  EXPECT_EQ((*opened)->fd(), -1);
  for (int32_t r = 0; r < 3; ++r) {
    (*made)->state(r).begun.store(static_cast<uint32_t>(100 + r));
    for (uint32_t parity = 0; parity < 2; ++parity) {
      (*made)->slot(r, parity)[191] = static_cast<std::byte>(2 * r + static_cast<int>(parity));
    }
  }
  for (int32_t r = 0; r < 3; ++r) {
    EXPECT_EQ((*opened)->state(r).begun.load(), static_cast<uint32_t>(100 + r));
    for (uint32_t parity = 0; parity < 2; ++parity) {
      EXPECT_EQ(static_cast<int>((*opened)->slot(r, parity)[191]),
                2 * r + static_cast<int>(parity));
    }
  }
}

TEST(SharedSegmentTest, OptionsOutsideTheirRangeAreNamed) {
  EXPECT_EQ(SharedSegment::Create({.num_ranks = 0}).status().message(),
            "num_ranks is 0; it must be from 1 to 64");
  EXPECT_EQ(SharedSegment::Create({.num_ranks = 65}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(SharedSegment::Create({.num_ranks = 1, .slot_bytes = 100}).status().message(),
            "slot_bytes is 100; it must be a multiple of 64 from 64 to 67108864");
}

TEST(SharedSegmentTest, OpenRefusesWhatIsNoSegment) {
  EXPECT_EQ(SharedSegment::Open(-1).status().code(), StatusCode::kInvalidArgument);
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  EXPECT_EQ(
      SharedSegment::Open(null).status().message(),
      "descriptor " + std::to_string(null) + " is no shared segment of this version of Pagemill");
  close(null);
}

}  // namespace
}  // namespace pagemill::comm
