#include "cc/comm/topology.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace pagemill::comm {
namespace {

using Ranks = std::vector<int32_t>;

TEST(TopologyTest, RanksAreRowMajorOverDataPipelineTensor) {
  const Topology topology = {.data = 2, .tensor = 4};
  EXPECT_EQ(topology.num_ranks(), 8);
  EXPECT_EQ(topology.Members(Axis::kTensor, 5), (Ranks{4, 5, 6, 7}));
  EXPECT_EQ(topology.Members(Axis::kData, 5), (Ranks{1, 5}));
  EXPECT_EQ(topology.Members(Axis::kPipeline, 5), (Ranks{5}));
  EXPECT_EQ(topology.Members(Axis::kExpert, 5), (Ranks{0, 1, 2, 3, 4, 5, 6, 7}));
  const Topology deep = {.data = 2, .pipeline = 2, .tensor = 2};
  EXPECT_EQ(deep.Members(Axis::kTensor, 6), (Ranks{6, 7}));
  EXPECT_EQ(deep.Members(Axis::kPipeline, 6), (Ranks{4, 6}));
  EXPECT_EQ(deep.Members(Axis::kData, 6), (Ranks{2, 6}));
  EXPECT_EQ(deep.Members(Axis::kExpert, 6), (Ranks{2, 3, 6, 7}));
}

TEST(TopologyTest, GroupsOfAnAxisPartitionTheRanks) {
  const Topology topology = {.data = 3, .pipeline = 2, .tensor = 4};
  for (Axis axis : kAxes) {
    std::set<Ranks> groups;
    for (int32_t r = 0; r < topology.num_ranks(); ++r) {
      const Ranks members = topology.Members(axis, r);
      EXPECT_EQ(static_cast<int32_t>(members.size()), topology.Size(axis));
      EXPECT_TRUE(std::ranges::binary_search(members, r));
      for (int32_t member : members) EXPECT_EQ(topology.Members(axis, member), members);
      groups.insert(members);
    }
    EXPECT_EQ(static_cast<int32_t>(groups.size()) * topology.Size(axis), topology.num_ranks());
  }
}

TEST(TopologyTest, SizesOutsideTheirRangeAreRefused) {
  EXPECT_TRUE((Topology{.data = 4, .pipeline = 4, .tensor = 4}).Validate().ok());
  EXPECT_EQ((Topology{.tensor = 65}).Validate().message(),
            "a topology of 1 data x 1 pipeline x 65 tensor ranks must have from 1 to 64 ranks");
  EXPECT_FALSE((Topology{.data = 0}).Validate().ok());
  EXPECT_FALSE((Topology{.data = 1 << 30, .pipeline = 8, .tensor = 1 << 30}).Validate().ok());
  EXPECT_FALSE((Topology{.data = 2, .pipeline = 3, .tensor = 11}).Validate().ok());
}

}  // namespace
}  // namespace pagemill::comm
