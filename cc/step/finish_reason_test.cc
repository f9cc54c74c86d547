#include "cc/step/finish_reason.h"

#include <set>

#include "gtest/gtest.h"

namespace pagemill::step {
namespace {

TEST(FinishReason, HasTheNamesOfTheHttpSurface) {
  EXPECT_EQ(FinishReasonName(FinishReason::kStop), "stop");
  EXPECT_EQ(FinishReasonName(FinishReason::kLength), "length");
  EXPECT_EQ(FinishReasonName(FinishReason::kAbort), "abort");
  EXPECT_EQ(FinishReasonName(FinishReason::kError), "error");
  EXPECT_EQ(FinishReasonName(FinishReason::kRepetition), "repetition");
  std::set<std::string_view> names;
  for (int i = 0; i < kNumFinishReasons; ++i) {
    names.insert(FinishReasonName(static_cast<FinishReason>(i)));
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(kNumFinishReasons));
}

}  // namespace
}  // namespace pagemill::step
