#include "cc/scheduler/draft_length.h"

#include "gtest/gtest.h"

namespace pagemill::scheduler {
namespace {

constexpr DraftLimits kLimits = {.max_draft_tokens = 6, .max_step_draft_tokens = 20};

TEST(DraftLength, GrowsWithAcceptanceUpToItsLimit) {
  DraftLength length;
  EXPECT_EQ(length.Get(kLimits, 1), 3);
  for (int32_t expected : {4, 5, 6, 6}) {
    length.Verified(kLimits, length.Get(kLimits, 1), length.Get(kLimits, 1));
    EXPECT_EQ(length.Get(kLimits, 1), expected);
  }
}

TEST(DraftLength, FallsToWhatWasAcceptedButNotToNothing) {
  DraftLength length;
  length.Verified(kLimits, 3, 2);
  EXPECT_EQ(length.Get(kLimits, 1), 2);
  for (int i = 0; i < 3; ++i) length.Verified(kLimits, 2, 0);
  EXPECT_EQ(length.Get(kLimits, 1), 1);
  length.Verified(kLimits, 1, 1);
  EXPECT_EQ(length.Get(kLimits, 1), 2);
}

TEST(DraftLength, ShrinksWithTheLoad) {
  const DraftLength length;
  EXPECT_EQ(length.Get(kLimits, 6), 3);
  EXPECT_EQ(length.Get(kLimits, 10), 2);
  EXPECT_EQ(length.Get(kLimits, 21), 0);
  EXPECT_EQ(length.Get({.max_draft_tokens = 6}, 1000), 3);
}

TEST(DraftLength, NoDraftsWhereNoneAreAllowed) { EXPECT_EQ(DraftLength().Get({}, 1), 0); }

}  // namespace
}  // namespace pagemill::scheduler
