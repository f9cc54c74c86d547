#include "cc/device/numa.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

namespace pagemill::device {
namespace {

using Kind = MemoryPlacement::Kind;

// A fake machine: a folder of files.
class NumaTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = testing::TempDir() + "/numa_" +
            testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(root_);
  }

  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + "/" + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
  }

  void SetNodes(const std::string& online, const std::string& with_memory) {
    Write("sys/devices/system/node/online", online);
    Write("sys/devices/system/node/has_memory", with_memory);
  }
  void SetCpus(int32_t node, const std::string& cpus) {
    Write("sys/devices/system/node/node" + std::to_string(node) + "/cpulist", cpus);
  }
  std::vector<NumaNode> Nodes() const { return NumaNodes(root_ + "/sys", root_ + "/proc"); }

  MemoryPlacement For(std::vector<int32_t> cpus) const { return PlacementFor(cpus, Nodes()); }

  std::string root_;
};

TEST_F(NumaTest, OneNodeIsNotPlaced) {
  SetNodes("0", "0");
  SetCpus(0, "0-3");
  EXPECT_EQ(Nodes(), (std::vector<NumaNode>{{.id = 0, .cpus = {0, 1, 2, 3}, .has_memory = true}}));
  EXPECT_EQ(For({0, 1, 2, 3}), MemoryPlacement());
}

TEST_F(NumaTest, ASystemThatDoesNotTellIsNotPlaced) {
  EXPECT_TRUE(Nodes().empty());
  EXPECT_EQ(For({0, 1}), MemoryPlacement());
}

TEST_F(NumaTest, TwoNodesAreInterleavedUnderThreadsOfBothAndPreferredUnderThoseOfOne) {
  SetNodes("0-1", "0-1");
  SetCpus(0, "0-3,8-11");
  SetCpus(1, "4-7,12-15");
  EXPECT_EQ(For({0, 1, 2, 3, 4, 5, 6, 7}), (MemoryPlacement{Kind::kInterleave, {0, 1}}));
  EXPECT_EQ(For({0, 1, 8, 9}), (MemoryPlacement{Kind::kOnNode, {0}}));
  EXPECT_EQ(For({12, 15}), (MemoryPlacement{Kind::kOnNode, {1}}));
}

TEST_F(NumaTest, OfFourNodesThoseOfTheThreadsCount) {
  SetNodes("0-3", "0-3");
  for (int32_t node = 0; node < 4; ++node) SetCpus(node, std::to_string(node));
  EXPECT_EQ(For({0, 1, 2, 3}), (MemoryPlacement{Kind::kInterleave, {0, 1, 2, 3}}));
  EXPECT_EQ(For({2, 3}), (MemoryPlacement{Kind::kInterleave, {2, 3}})) << "one of two ranks";
  EXPECT_EQ(For({3}), (MemoryPlacement{Kind::kOnNode, {3}})) << "one of four ranks";
}

TEST_F(NumaTest, NodesWithoutMemoryOrWithoutCpusAreNotUsedWhereOthersServe) {
  SetNodes("0-3", "0,2,3");  // 1 has only CPUs, 3 only memory (an expander)
  SetCpus(0, "0-1");
  SetCpus(1, "2-3");
  SetCpus(2, "4-5");
  SetCpus(3, "");
  EXPECT_EQ(For({0, 1, 2, 3, 4, 5}), (MemoryPlacement{Kind::kInterleave, {0, 2}}));
  EXPECT_EQ(For({0, 2}), (MemoryPlacement{Kind::kOnNode, {0}}));
  EXPECT_EQ(For({2, 3}), (MemoryPlacement{Kind::kInterleave, {0, 2, 3}})) << "all are far";
}

TEST_F(NumaTest, NodesThatTheCpusetExcludesAreNotUsed) {
  SetNodes("0-2", "0-2");
  for (int32_t node = 0; node < 3; ++node) SetCpus(node, std::to_string(node));
  Write("proc/self/status",
        "Name:\tpagemill\nMems_allowed:\t00000000,00000006\n"
        "Mems_allowed_list:\t1-2");
  EXPECT_FALSE(Nodes()[0].has_memory);
  EXPECT_EQ(For({0, 1, 2}), (MemoryPlacement{Kind::kInterleave, {1, 2}}));
  Write("proc/self/status", "Mems_allowed_list:\t2");
  EXPECT_EQ(For({0, 1, 2}), MemoryPlacement()) << "the only one";
}

TEST_F(NumaTest, UnreadableListsNameNothing) {
  SetNodes("x,1-y,0-,2", "2,-5,0");
  SetCpus(2, "7,junk,9-8");
  EXPECT_EQ(Nodes(), (std::vector<NumaNode>{{.id = 2, .cpus = {7}, .has_memory = true}}));
}

TEST(MemoryPlacementTest, IsDescribed) {
  EXPECT_EQ(MemoryPlacement().Description(), "");
  EXPECT_EQ((MemoryPlacement{Kind::kOnNode, {1}}).Description(), "on node 1");
  EXPECT_EQ((MemoryPlacement{Kind::kInterleave, {0, 2}}).Description(),
            "interleaved over nodes 0, 2");
}

class PlaceMemoryTest : public testing::Test {
 protected:
  void SetUp() override {
    void* data = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(data, MAP_FAILED);
    bytes_ = {static_cast<std::byte*>(data), kBytes};
  }
  void TearDown() override { munmap(bytes_.data(), bytes_.size()); }

  static constexpr size_t kBytes = 1 << 20;
  std::span<std::byte> bytes_;
};

// Memory can be placed on this machine's first node with memory; an emulator may refuse, which must
// leave memory usable.
TEST_F(PlaceMemoryTest, PlacesOnANodeThatExistsOrSaysWhyNot) {
  for (const Kind kind : {Kind::kOnNode, Kind::kInterleave}) {
    int32_t node = 0;
    for (const NumaNode& of : NumaNodes()) {
      if (of.has_memory) node = of.id;
    }
    const Status placed = PlaceMemory(bytes_, {kind, {node}});
    if (!placed.ok()) {
      EXPECT_EQ(placed.code(), StatusCode::kUnimplemented);
      EXPECT_NE(placed.message().find("refuses to place memory"), std::string::npos);
    }
    std::fill(bytes_.begin(), bytes_.end(), std::byte{7});
    EXPECT_EQ(std::count(bytes_.begin(), bytes_.end(), std::byte{7}), kBytes);
  }
}

TEST_F(PlaceMemoryTest, ANodeThatDoesNotExistIsRefusedWithItsNumber) {
  const Status placed = PlaceMemory(bytes_, {Kind::kInterleave, {1000}});
  ASSERT_EQ(placed.code(), StatusCode::kUnimplemented);
  EXPECT_NE(placed.message().find("interleaved over nodes 1000: "), std::string::npos)
      << placed.message();
}

TEST_F(PlaceMemoryTest, AnywhereAsksForNothing) {
  EXPECT_TRUE(PlaceMemory(bytes_, {}).ok());
  EXPECT_TRUE(PlaceMemory({}, {Kind::kOnNode, {1000}}).ok());
}

}  // namespace
}  // namespace pagemill::device
