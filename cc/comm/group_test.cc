#include "cc/comm/group.h"

#include <gtest/gtest.h>

#include <vector>

#include "cc/comm/testing/fake_group.h"

namespace pagemill::comm {
namespace {

using testing::FakeGroup;

TEST(GroupTest, CallsArriveAsData) {
  FakeGroup group(1, 3);
  const float x[] = {1, 2};
  float y[2];
  ASSERT_TRUE(group.AllReduce(DType::kF32, x, y, 2).ok());
  EXPECT_EQ(y[1], 6.0f);
  EXPECT_EQ(group.Send(std::as_bytes(std::span(x)), 2).code(), StatusCode::kUnimplemented);
  ASSERT_EQ(group.calls().size(), 2u);
  EXPECT_EQ(group.calls()[0].kind, Collective::Kind::kAllReduce);
  EXPECT_EQ(group.calls()[0].dtype, DType::kF32);
  EXPECT_EQ(group.calls()[0].count, 2);
  EXPECT_EQ(group.calls()[1].kind, Collective::Kind::kSend);
  EXPECT_EQ(group.calls()[1].count, 8);
  EXPECT_EQ(group.calls()[1].peer, 2);
}

TEST(GroupTest, AGroupThatHasEndedIsNotCalled) {
  FakeGroup group(0, 2);
  group.Fail(Unavailable("rank 1 has died"));
  float x = 1;
  EXPECT_EQ(group.AllReduce(DType::kF32, &x, &x, 1).message(), "rank 1 has died");
  EXPECT_TRUE(group.calls().empty());
}

TEST(GroupTest, GroupsAreByAxisAndReportTheFirstThatHasEnded) {
  Groups groups;
  for (Axis axis : kAxes) EXPECT_EQ(groups.at(axis), nullptr);
  EXPECT_TRUE(groups.status().ok());
  const auto tensor = std::make_shared<FakeGroup>(0, 2), data = std::make_shared<FakeGroup>(1, 4);
  groups.Set(Axis::kTensor, tensor);
  groups.Set(Axis::kData, data);
  EXPECT_EQ(groups.at(Axis::kData)->num_ranks(), 4);
  EXPECT_TRUE(groups.status().ok());
  data->Fail(Unavailable("rank 3 has died"));
  EXPECT_EQ(groups.status().message(), "rank 3 has died");
}

using GroupDeathTest = ::testing::Test;

TEST(GroupDeathTest, CallsThatNoCallerMayMakeAbort) {
  FakeGroup group(0, 2);
  float x = 1;
  const std::vector<int64_t> three = {1, 2, 3};
  EXPECT_DEATH((void)group.AllReduce(DType::kQ4_0, &x, &x, 1), "CanAdd");
  EXPECT_DEATH((void)group.AllGather(&x, &x, 1, three), "AreCounts");
  const std::vector<int64_t> in = {1, 2}, out = {2, 1};
  EXPECT_DEATH((void)group.AllToAll(&x, in, &x, out), "out_counts");
  EXPECT_DEATH((void)group.Broadcast({}, 2), "peer");
  EXPECT_DEATH((void)group.Send({}, 0), "of_pair");
}

}  // namespace
}  // namespace pagemill::comm
