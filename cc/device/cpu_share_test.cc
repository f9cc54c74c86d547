#include "cc/device/cpu_share.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "cc/device/core_count.h"

namespace pagemill::device {
namespace {

// A machine of `cores` cores with two hardware threads each, with the usual numbering: thread t of
// core c is CPU t * cores + c.
std::string MakeTopology(int32_t cores) {
  const std::string root = ::testing::TempDir() + "/cpu_share_test_" + std::to_string(cores);
  for (int32_t cpu = 0; cpu < 2 * cores; ++cpu) {
    const std::string folder = root + "/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology";
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "/core_id") << cpu % cores << "\n";
    std::ofstream(folder + "/physical_package_id") << 0 << "\n";
  }
  return root;
}

TEST(CpuShareTest, SharesAreWholeCoresAndTileTheMachine) {
  const std::string root = MakeTopology(4);
  const std::vector<int32_t> all = {0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_EQ(CpuShare(all, 0, 2, root), (std::vector<int32_t>{0, 1, 4, 5}));
  EXPECT_EQ(CpuShare(all, 1, 2, root), (std::vector<int32_t>{2, 3, 6, 7}));
  std::multiset<int32_t> seen;
  for (int32_t index = 0; index < 3; ++index) {
    for (int32_t cpu : CpuShare(all, index, 3, root)) seen.insert(cpu);
  }
  EXPECT_EQ(seen, std::multiset<int32_t>(all.begin(), all.end()));
}

TEST(CpuShareTest, OnlyAllowedCpusAreShared) {
  const std::string root = MakeTopology(4);
  const std::vector<int32_t> allowed = {1, 2, 6};  // CPU 6 is of the same core as 2
  EXPECT_EQ(CpuShare(allowed, 0, 2, root), (std::vector<int32_t>{1}));
  EXPECT_EQ(CpuShare(allowed, 1, 2, root), (std::vector<int32_t>{2, 6}));
}

TEST(CpuShareTest, FewerCoresThanSharesGiveNoShare) {
  EXPECT_TRUE(CpuShare(std::vector<int32_t>{0, 4}, 0, 2, MakeTopology(4)).empty());
}

TEST(CpuShareTest, AnUnknownTopologyTakesEachCpuForACore) {
  EXPECT_EQ(CpuShare(std::vector<int32_t>{3, 5}, 1, 2, "/nowhere"), (std::vector<int32_t>{5}));
}

TEST(CpuShareTest, AScopePinsAndGivesBack) {
  const std::vector<int32_t> before = AllowedCpus();
  ASSERT_FALSE(before.empty());
  {
    const std::vector<int32_t> one = {before.front()};
    const ScopedAffinity pinned(one);
    EXPECT_EQ(AllowedCpus(), one);
  }
  EXPECT_EQ(AllowedCpus(), before);
  const ScopedAffinity nothing({});
  EXPECT_EQ(AllowedCpus(), before);
}

}  // namespace
}  // namespace pagemill::device
