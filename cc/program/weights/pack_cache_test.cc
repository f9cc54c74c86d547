#include "cc/program/weights/pack_cache.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "cc/device/large_pages.h"

namespace pagemill::program {
namespace {

namespace fs = std::filesystem;

class PackCacheTest : public ::testing::Test {
 protected:
  PackCacheTest() {
    std::string name = ::testing::TempDir() + "/pack_cache_test_XXXXXX";
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name + "/made/when/needed";
    root_ = name;
  }
  ~PackCacheTest() override { fs::remove_all(root_); }

  static std::vector<std::byte> Bytes(size_t size, int seed) {
    std::vector<std::byte> bytes(size);
    for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 31 + seed);
    return bytes;
  }
  static std::vector<std::byte> Copy(std::span<const std::byte> bytes) {
    return {bytes.begin(), bytes.end()};
  }
  // The files with this suffix; "" = all.
  std::vector<fs::path> Files(const std::string& suffix = "") const {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      if (entry.path().string().ends_with(suffix)) files.push_back(entry.path());
    }
    return files;
  }
  fs::path Pack() const { return Files(".packed").at(0); }
  // Overwrites one byte of the only pack, and changes its time even if the clock has not advanced.
  void Damage(int64_t offset) const {
    std::fstream file(Pack(), std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(offset);
    file.put('!');
    file.close();
    const auto modified = fs::last_write_time(Pack());
    fs::last_write_time(Pack(), modified - std::chrono::seconds(1));
  }

  std::string root_;
  std::string folder_;
  // Writes a fake /sys and /proc with large pages of 1 MiB, available if `choice` allows it; every
  // mapping has `large_kibibytes` in large pages. Returns its root.
  std::string System(const std::string& choice, int64_t large_kibibytes) const {
    const std::string root = root_ + "/system";
    const std::string folder = root + "/sys/kernel/mm/transparent_hugepage";
    fs::create_directories(folder);
    fs::create_directories(root + "/proc/self");
    std::ofstream(folder + "/hpage_pmd_size") << (1 << 20);
    std::ofstream(folder + "/enabled") << choice;
    std::ofstream(root + "/proc/self/smaps")
        << "1000-fffffffffffff000 r--p\nFilePmdMapped: " << large_kibibytes << " kB\n";
    return root;
  }
  // Entry::better_copied for a pack of this size on such a system.
  bool BetterCopied(const std::string& choice, int64_t large_kibibytes, int64_t bytes) {
    const PackCache cache(folder_, std::nullopt, System(choice, large_kibibytes));
    EXPECT_TRUE(cache.Store({5, 5}, Bytes(static_cast<size_t>(bytes), 5), pool_).ok());
    const StatusOr<PackCache::Entry> entry = cache.Find({5, 5}, bytes, pool_);
    EXPECT_TRUE(entry.ok()) << entry.status().ToString();
    return entry.ok() && entry->better_copied;
  }

  device::ThreadPool pool_{{.num_threads = 2}};
};

TEST_F(PackCacheTest, MapsWhatWasStored) {
  const PackCache cache(folder_);
  const std::vector<std::byte> bytes = Bytes((3 << 20) + 5, 1);
  const int64_t size = static_cast<int64_t>(bytes.size());
  EXPECT_FALSE(cache.Find({1, 2}, size, pool_).ok());
  ASSERT_TRUE(cache.Store({1, 2}, bytes, pool_).ok());
  const StatusOr<PackCache::Entry> entry = cache.Find({1, 2}, size, pool_);
  ASSERT_TRUE(entry.ok()) << entry.status().ToString();
  EXPECT_EQ(Copy(entry->bytes), bytes);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(entry->bytes.data()) % 64, 0u);
  EXPECT_FALSE(cache.Find({2, 1}, size, pool_).ok()) << "another key";
  EXPECT_FALSE(cache.Find({1, 2}, size - 1, pool_).ok()) << "another size";
  EXPECT_EQ(Files(".packed").size(), 1u);
  EXPECT_EQ(Files(".writing").size(), 0u) << "nothing temporary is left";
}

TEST_F(PackCacheTest, DamagedFilesAreNotFoundAndAreReplaced) {
  const PackCache cache(folder_, std::nullopt, "", std::chrono::seconds(0));
  const std::vector<std::byte> bytes = Bytes(2 << 20, 3);
  for (int64_t offset : {0, 17, 40, 4096, 4096 + (2 << 20) - 1}) {
    ASSERT_TRUE(cache.Store({7, 7}, bytes, pool_).ok());
    ASSERT_TRUE(cache.Find({7, 7}, 2 << 20, pool_).ok());
    Damage(offset);
    const Status damage = cache.Find({7, 7}, 2 << 20, pool_).status();
    EXPECT_EQ(damage.code(), StatusCode::kDataLoss) << "byte " << offset;
    EXPECT_NE(damage.message().find(Pack().string()), std::string::npos) << damage.message();
  }
  ASSERT_TRUE(cache.Store({7, 7}, bytes, pool_).ok());
  fs::resize_file(Pack(), 5000);
  EXPECT_EQ(cache.Find({7, 7}, 2 << 20, pool_).status().code(), StatusCode::kDataLoss) << "cut";
}

TEST_F(PackCacheTest, RemovesWhatWasNotUsedForLongest) {
  const PackCache cache(folder_, 3 * 8192, "", std::chrono::seconds(0));
  const auto age = [&](uint64_t key, int hours) {
    char name[48];
    std::snprintf(name, sizeof(name), "/%032llx.packed", static_cast<unsigned long long>(key));
    fs::last_write_time(folder_ + name,
                        fs::file_time_type::clock::now() - std::chrono::hours(hours));
  };
  for (uint64_t key : {1, 2, 3}) {
    ASSERT_TRUE(cache.Store({key, 0}, Bytes(4096, 0), pool_).ok());
    age(key, static_cast<int>(10 - key));
  }
  ASSERT_TRUE(cache.Find({1, 0}, 4096, pool_).ok()) << "the oldest, but used just now";
  ASSERT_TRUE(cache.Store({4, 0}, Bytes(4096, 0), pool_).ok());
  EXPECT_TRUE(cache.Find({1, 0}, 4096, pool_).ok());
  EXPECT_FALSE(cache.Find({2, 0}, 4096, pool_).ok());
  EXPECT_TRUE(cache.Find({3, 0}, 4096, pool_).ok());
  EXPECT_TRUE(cache.Find({4, 0}, 4096, pool_).ok());
}

TEST_F(PackCacheTest, AFileIsReadWholeOnce) {
  const PackCache cache(folder_, std::nullopt, "", std::chrono::seconds(0));
  constexpr int64_t kSize = 2 << 20;
  ASSERT_TRUE(cache.Store({7, 7}, Bytes(kSize, 3), pool_).ok());
  ASSERT_TRUE(cache.Find({7, 7}, kSize, pool_).ok());
  const auto modified = fs::last_write_time(Pack());
  ASSERT_TRUE(cache.Find({7, 7}, kSize, pool_).ok());
  EXPECT_EQ(fs::last_write_time(Pack()), modified) << "its times are how it is recognised";
  // A change that leaves the file's times unchanged is not detected, since the bytes are not read:
  // its record is rewritten.
  Damage(4096 + 100'000);
  EXPECT_FALSE(cache.Find({7, 7}, kSize, pool_).ok());
  const Digest128 checksum = ParallelDigest(Bytes(kSize, 3), pool_);
  cache.digests().Remember(*MappedFile::Open(Pack().string()), checksum);
  EXPECT_TRUE(cache.Find({7, 7}, kSize, pool_).ok());
}

TEST_F(PackCacheTest, WhatWasNotUsedForAMonthIsRemoved) {
  const PackCache cache(folder_, std::nullopt, "", std::chrono::seconds(0));
  for (uint64_t key : {1, 2}) {
    ASSERT_TRUE(cache.Store({key, 0}, Bytes(100, 0), pool_).ok());
    ASSERT_TRUE(cache.Find({key, 0}, 100, pool_).ok());
  }
  const auto long_ago = fs::file_time_type::clock::now() - std::chrono::hours(31 * 24);
  for (const fs::path& pack : Files(".packed")) fs::last_write_time(pack, long_ago);
  // The first one was used long ago, too.
  const std::string first = folder_ + "/00000000000000000000000000000001.packed";
  ASSERT_TRUE(fs::exists(first));
  fs::last_write_time(cache.digests().PathFor(first), long_ago);
  ASSERT_TRUE(cache.Store({3, 0}, Bytes(100, 0), pool_).ok());
  EXPECT_FALSE(fs::exists(first));
  EXPECT_EQ(Files(".packed").size(), 2u);
}

TEST_F(PackCacheTest, PacksMayTakeWhatTheFileSystemHas) {
  fs::create_directories(folder_);
  const fs::space_info space = fs::space(folder_);
  if (space.available < space.capacity / 10 + (1 << 20)) GTEST_SKIP() << "the disk is full";
  const std::string large = folder_ + "/0.packed";
  std::ofstream(large).close();
  fs::resize_file(large, uint64_t{40} << 30);  // takes no space
  ASSERT_TRUE(PackCache(folder_).Store({1, 1}, Bytes(5000, 0), pool_).ok());
  EXPECT_TRUE(fs::exists(large));
}

TEST_F(PackCacheTest, RemovesWhatADeadProcessLeft) {
  fs::create_directories(folder_);
  const std::string left = folder_ + "/0.packed.1.writing";
  const std::string fresh = folder_ + "/0.packed.2.writing";
  std::ofstream(left) << "half of something";
  std::ofstream(fresh) << "of a process that is still at it";
  fs::last_write_time(left, fs::file_time_type::clock::now() - std::chrono::hours(2));
  ASSERT_TRUE(PackCache(folder_).Store({1, 1}, Bytes(100, 0), pool_).ok());
  EXPECT_FALSE(fs::exists(left));
  EXPECT_TRUE(fs::exists(fresh));
}

TEST_F(PackCacheTest, WhatLiesInSmallPagesIsBetterCopied) {
  constexpr int64_t kSize = 3 << 20;
  EXPECT_TRUE(BetterCopied("always [madvise] never", 0, kSize));
  EXPECT_TRUE(BetterCopied("[always] madvise never", 1535, kSize)) << "most of it";
  EXPECT_FALSE(BetterCopied("always [madvise] never", 1536, kSize)) << "half lies in large ones";
}

TEST_F(PackCacheTest, WhereACopyWouldLieInSmallPagesTooItIsShared) {
  EXPECT_FALSE(BetterCopied("always madvise [never]", 0, 3 << 20)) << "large pages are off";
  EXPECT_FALSE(BetterCopied("always [madvise] never", 0, (2 << 20) - 1)) << "too small for them";
}

TEST_F(PackCacheTest, MapsLargeFilesAtTheBorderOfALargePage) {
  const int64_t border = device::DetectLargePages().bytes;
  if (border == 0 || border > 4 << 20) GTEST_SKIP() << "no large pages that a test can fill";
  const PackCache cache(folder_);
  const std::vector<std::byte> bytes = Bytes(static_cast<size_t>(border) + 5, 1);
  ASSERT_TRUE(cache.Store({1, 2}, bytes, pool_).ok());
  const StatusOr<PackCache::Entry> entry = cache.Find({1, 2}, border + 5, pool_);
  ASSERT_TRUE(entry.ok()) << entry.status().ToString();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(entry->file.bytes().data()) % border, 0u);
  EXPECT_EQ(Copy(entry->bytes), bytes);
}

TEST_F(PackCacheTest, RefusesWhatExceedsTheFolder) {
  const Status status = PackCache(folder_, 8192).Store({1, 1}, Bytes(5000, 0), pool_);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("packed weights of 9096 bytes exceed what"), std::string::npos);
}

TEST_F(PackCacheTest, SaysWhyItCannotBeWritten) {
  const std::string file = root_ + "/a_file";
  std::ofstream(file) << "no folder";
  const Status status = PackCache(file + "/below").Store({1, 1}, Bytes(10, 0), pool_);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("cannot create '" + file + "/below'"), std::string::npos)
      << status.message();
}

}  // namespace
}  // namespace pagemill::program
