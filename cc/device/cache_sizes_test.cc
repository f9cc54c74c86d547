#include "cc/device/cache_sizes.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace pagemill::device {
namespace {

class DataCachesTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = testing::TempDir() + "/caches_" +
            testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(root_);
  }

  // One cache of the first CPU.
  void Write(int index, const char* type, const char* level, const char* size, const char* map) {
    const std::string folder =
        root_ + "/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "type") << type << '\n';
    std::ofstream(folder + "level") << level << '\n';
    std::ofstream(folder + "size") << size << '\n';
    std::ofstream(folder + "shared_cpu_map") << map << '\n';
  }

  std::string root_;
};

TEST_F(DataCachesTest, LeavesInstructionCachesOut) {
  Write(0, "Unified", "3", "32M", "ff,00000003");
  Write(1, "Instruction", "1", "32K", "1");
  Write(2, "Data", "1", "48K", "00000001");
  Write(3, "Unified", "2", "2048K", "3");
  const std::vector<CacheSize> expected = {{1, 48 << 10, 1}, {2, 2 << 20, 2}, {3, 32 << 20, 10}};
  EXPECT_EQ(DataCaches(root_), expected);
}

TEST_F(DataCachesTest, UnknownSizesAreLeftOut) {
  Write(0, "Data", "1", "", "1");
  EXPECT_TRUE(DataCaches(root_).empty());
  EXPECT_TRUE(DataCaches(root_ + "/nowhere").empty());
}

}  // namespace
}  // namespace pagemill::device
