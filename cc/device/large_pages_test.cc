#include "cc/device/large_pages.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace pagemill::device {
namespace {

// A fake system: a folder of files.
class LargePagesTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = testing::TempDir() + "/large_pages_" +
            testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + "/" + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  LargePages Detect(const std::string& size, const std::string& enabled) {
    Write("kernel/mm/transparent_hugepage/hpage_pmd_size", size);
    Write("kernel/mm/transparent_hugepage/enabled", enabled);
    return DetectLargePages(root_);
  }
  // Uses addresses only; does not read memory.
  int64_t Count(uintptr_t address, size_t size) const {
    return BytesInLargePages({reinterpret_cast<const std::byte*>(address), size}, root_);
  }

  std::string root_;
};

TEST_F(LargePagesTest, MemoryThatAsksGetsThemUnlessTheyAreOff) {
  EXPECT_TRUE(Detect("2097152\n", "always [madvise] never\n").on_request);
  EXPECT_TRUE(Detect("2097152\n", "[always] madvise never\n").on_request);
  const LargePages off = Detect("2097152\n", "always madvise [never]\n");
  EXPECT_FALSE(off.on_request);
  EXPECT_EQ(off.bytes, 2 << 20) << "those of files stay";
}

TEST_F(LargePagesTest, ASystemThatDoesNotTellHasNone) {
  EXPECT_EQ(DetectLargePages(root_).bytes, 0);
  EXPECT_FALSE(DetectLargePages(root_).on_request);
  EXPECT_FALSE(Detect("none\n", "[always] madvise never\n").on_request) << "of what size?";
  EXPECT_EQ(Detect("-4096\n", "").bytes, 0);
}

constexpr char kMappings[] =
    R"(5500000000-5500200000 rw-p 00000000 00:00 0                              [heap]
Rss:                2048 kB
AnonHugePages:      2048 kB
FilePmdMapped:         0 kB
7f00000000-7f00800000 r--p 00000000 fe:00 123                            /var/cache/a.packed
Size:               8192 kB
FilePmdMapped:      6144 kB
VmFlags: rd mr mw me hg
7f00800000-7f00c00000 rw-s 00000000 00:01 9                              /dev/shm/b
ShmemPmdMapped:     4096 kB
7f00c00000-7f01000000 r--p 00000000 fe:00 456                            /models/c
FilePmdMapped:         0 kB
)";

TEST_F(LargePagesTest, CountsTheMappingsOfARange) {
  Write("self/smaps", kMappings);
  EXPECT_EQ(Count(0x5500000000, 2 << 20), 2 << 20) << "anonymous";
  EXPECT_EQ(Count(0x7f00000000, 8 << 20), 6 << 20) << "a file";
  EXPECT_EQ(Count(0x7f00000000 + 4096, (8 << 20) - 4096), 6 << 20) << "behind its header";
  EXPECT_EQ(Count(0x7f00800000, 4 << 20), 4 << 20) << "shared memory";
  EXPECT_EQ(Count(0x7f00000000, 12 << 20), 10 << 20) << "two mappings";
  EXPECT_EQ(Count(0x7f00c00000, 4 << 20), 0) << "small pages";
  EXPECT_EQ(Count(0x6000000000, 4 << 20), 0) << "not mapped";
}

TEST_F(LargePagesTest, CountsNoMoreThanTheRange) {
  Write("self/smaps", kMappings);
  EXPECT_EQ(Count(0x7f00000000, 1 << 20), 1 << 20);
}

TEST_F(LargePagesTest, CountsNothingWhereTheSystemDoesNotTell) {
  EXPECT_EQ(Count(0x7f00000000, 1 << 20), 0);
  Write("self/smaps", "7f00000000-\nFilePmdMapped: x kB\n7f00000000-7f00800000 r--p\nFilePmd");
  EXPECT_EQ(Count(0x7f00000000, 1 << 20), 0) << "not as expected";
}

TEST_F(LargePagesTest, ReadsTheSystemItRunsOn) {
  const LargePages pages = DetectLargePages();
  EXPECT_GE(pages.bytes, 0);
  EXPECT_TRUE(!pages.on_request || pages.bytes > 0);
  const std::string memory(1 << 16, 'x');
  const auto large = BytesInLargePages(std::as_bytes(std::span(memory)));
  EXPECT_GE(large, 0);
  EXPECT_LE(large, 1 << 16);
}

}  // namespace
}  // namespace pagemill::device
