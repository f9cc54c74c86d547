#include "cc/device/core_count.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace pagemill::device {
namespace {

// A fake machine: a folder with the contents of /sys and /proc.
class CoreCountTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = testing::TempDir() + "/core_count_" +
            testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(root_);
    sources_.sysfs_root = root_ + "/sys";
    sources_.procfs_root = root_ + "/proc";
  }

  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + "/" + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
  }

  // Logical CPU `cpu` is a thread of core `core` in socket `package`.
  void AddCpu(int cpu, int package, int core) {
    const std::string topology = "sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
    Write(topology + "core_id", std::to_string(core));
    Write(topology + "physical_package_id", std::to_string(package));
    sources_.allowed_cpus.push_back(cpu);
  }

  std::string root_;
  CoreCountSources sources_;
};

TEST_F(CoreCountTest, SiblingThreadsAreOneCore) {
  for (int cpu = 0; cpu < 8; ++cpu) AddCpu(cpu, 0, cpu % 4);
  EXPECT_EQ(CountCores(sources_), 4);
}

TEST_F(CoreCountTest, SocketsNumberTheirCoresAlike) {
  for (int cpu = 0; cpu < 6; ++cpu) AddCpu(cpu, cpu / 3, cpu % 3);
  EXPECT_EQ(CountCores(sources_), 6);
}

TEST_F(CoreCountTest, OnlyAllowedCpusCount) {
  for (int cpu = 0; cpu < 8; ++cpu) AddCpu(cpu, 0, cpu % 4);
  sources_.allowed_cpus = {1, 5, 6};
  EXPECT_EQ(CountCores(sources_), 2);
}

TEST_F(CoreCountTest, WithoutTopologyEachCpuIsACore) {
  sources_.allowed_cpus = {0, 3, 9};
  EXPECT_EQ(CountCores(sources_), 3);
}

TEST_F(CoreCountTest, NothingKnownIsOneCore) { EXPECT_EQ(CountCores(sources_), 1); }

TEST_F(CoreCountTest, QuotaOfVersion2Binds) {
  for (int cpu = 0; cpu < 8; ++cpu) AddCpu(cpu, 0, cpu);
  Write("proc/self/cgroup", "0::/pod/container");
  Write("sys/fs/cgroup/pod/container/cpu.max", "max 100000");
  EXPECT_EQ(CountCores(sources_), 8);
  Write("sys/fs/cgroup/pod/cpu.max", "350000 100000");  // the parent is tighter
  EXPECT_EQ(CountCores(sources_), 3);
  Write("sys/fs/cgroup/pod/container/cpu.max", "20000 100000");
  EXPECT_EQ(CountCores(sources_), 1);
}

TEST_F(CoreCountTest, QuotaOfVersion1Binds) {
  for (int cpu = 0; cpu < 8; ++cpu) AddCpu(cpu, 0, cpu);
  Write("proc/self/cgroup", "5:cpuset:/\n4:cpuacct,cpu:/job\n0::/");
  Write("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "-1");
  Write("sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000");
  EXPECT_EQ(CountCores(sources_), 8);
  Write("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "200000");
  EXPECT_EQ(CountCores(sources_), 2);
}

TEST(AllowedCpus, ThisThreadMayRunSomewhere) { EXPECT_FALSE(AllowedCpus().empty()); }

}  // namespace
}  // namespace pagemill::device
