#include "cc/base/status.h"

#include <memory>
#include <set>
#include <string>

#include "cc/base/strong_id.h"
#include "gtest/gtest.h"

namespace pagemill {
namespace {

StatusOr<int> Half(int value) {
  if (value % 2 != 0) return InvalidArgument("value is " + std::to_string(value));
  return value / 2;
}

StatusOr<int> Quarter(int value) {
  PAGEMILL_ASSIGN_OR_RETURN(const int half, Half(value));
  return Half(half);
}

Status IsEven(int value) {
  PAGEMILL_RETURN_IF_ERROR(Half(value).status());
  return OkStatus();
}

TEST(Status, CarriesCodeAndSentence) {
  EXPECT_TRUE(OkStatus().ok());
  EXPECT_EQ(OkStatus().ToString(), "OK");
  const Status status = NotFound("no such model");
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.ToString(), "NOT_FOUND: no such model");
  EXPECT_EQ(status, NotFound("no such model"));
  EXPECT_NE(status, Internal("no such model"));
}

TEST(Status, EveryCodeHasANameOfItsOwn) {
  std::set<std::string_view> names;
  for (int32_t code = 0; code <= static_cast<int32_t>(StatusCode::kDataLoss); ++code) {
    names.insert(StatusCodeName(static_cast<StatusCode>(code)));
  }
  EXPECT_EQ(names.size(), 11u);
  EXPECT_FALSE(names.contains("UNKNOWN"));
}

TEST(StatusOr, MacrosPassFailuresOn) {
  EXPECT_EQ(*Quarter(12), 3);
  EXPECT_EQ(Quarter(5).status().message(), "value is 5");
  EXPECT_EQ(Quarter(6).status().message(), "value is 3");
  EXPECT_TRUE(IsEven(4).ok());
  EXPECT_EQ(IsEven(3).code(), StatusCode::kInvalidArgument);
}

TEST(StatusOr, HoldsValuesThatOnlyMove) {
  StatusOr<std::unique_ptr<int>> held(std::make_unique<int>(4));
  ASSERT_TRUE(held.ok());
  EXPECT_EQ(**held, 4);
  const std::unique_ptr<int> taken = *std::move(held);
  EXPECT_EQ(*taken, 4);
}

TEST(StatusOrDeathTest, DereferencingAnErrorAborts) {
  EXPECT_DEATH(*Half(3), "value is 3");
  EXPECT_DEATH(PAGEMILL_CHECK(1 + 1 == 3), "check failed: 1 \\+ 1 == 3");
}

TEST(StrongId, ComparesAndHashes) {
  using Id = StrongId<struct TestTag, int32_t>;
  static_assert(!std::is_convertible_v<int32_t, Id> && !std::is_convertible_v<Id, int32_t>);
  EXPECT_EQ(Id(3), Id(3));
  EXPECT_LT(Id(2), Id(3));
  EXPECT_EQ(std::hash<Id>()(Id(7)), std::hash<int32_t>()(7));
}

TEST(Status, CarriesWhenToRetry) {
  const Status status = ResourceExhausted("full").WithRetryAfter(7);
  EXPECT_EQ(status.retry_after_s(), 7);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(Status().retry_after_s(), 0);
  EXPECT_NE(status, ResourceExhausted("full"));
}

}  // namespace
}  // namespace pagemill
