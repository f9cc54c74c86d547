#include "cc/program/weights/file_digest.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace pagemill::program {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSize = (3 << 20) + 7;
constexpr int64_t kUnsampled = 100'000;  // between two samples

class DigestMemoryTest : public ::testing::Test {
 protected:
  DigestMemoryTest() {
    std::string bytes(kSize, 'a');
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 31 + i / 4096);
    std::ofstream(path_, std::ios::binary) << bytes;
  }
  ~DigestMemoryTest() override { fs::remove_all(root_); }

  MappedFile File() const { return *MappedFile::Open(path_); }
  Digest128 Digest() { return memory_.Of(File(), pool_); }
  Digest128 Computed() { return ParallelDigest(File().bytes(), pool_); }
  // Changes a byte and makes the file one second older each time, whatever the clock says.
  void Flip(int64_t offset) {
    const auto modified = fs::last_write_time(path_);
    std::fstream file(path_, std::ios::binary | std::ios::in | std::ios::out);
    file.seekg(offset);
    const auto byte = static_cast<char>(file.get());
    file.seekp(offset);
    file.put(static_cast<char>(byte ^ 1));
    file.close();
    fs::last_write_time(path_, modified - std::chrono::seconds(1));
  }

  static std::string MakeFolder() {
    std::string name = ::testing::TempDir() + "/file_digest_test_XXXXXX";
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    return name;
  }

  const std::string root_ = MakeFolder();
  const std::string path_ = root_ + "/weights";
  device::ThreadPool pool_{{.num_threads = 2}};
  DigestMemory memory_{root_ + "/made/when/needed", std::chrono::seconds(0)};
};

TEST_F(DigestMemoryTest, EveryByteCounts) {
  std::vector<Digest128> seen = {Digest()};
  for (const int64_t offset : {int64_t{0}, kUnsampled, kSize / 2 + 12'345, kSize - 1}) {
    Flip(offset);
    const Digest128 digest = Digest();
    for (const Digest128& other : seen) EXPECT_FALSE(digest == other) << "byte " << offset;
    EXPECT_EQ(digest, Computed());
    seen.push_back(digest);
  }
}

TEST_F(DigestMemoryTest, AFileIsReadOnce) {
  EXPECT_FALSE(memory_.Recall(File()).has_value());
  const Digest128 digest = Digest();
  EXPECT_EQ(memory_.Recall(File()), digest);
  memory_.Remember(File(), {1, 2});
  EXPECT_EQ(Digest(), (Digest128{1, 2})) << "it would compute another";
}

TEST_F(DigestMemoryTest, AFileOfAnotherTimeSizeOrInodeIsReadAgain) {
  const Digest128 digest = Digest();
  fs::last_write_time(path_, fs::last_write_time(path_) - std::chrono::seconds(1));
  EXPECT_FALSE(memory_.Recall(File()).has_value()) << "time";
  EXPECT_EQ(Digest(), digest);
  fs::copy_file(path_, path_ + "2");
  fs::last_write_time(path_ + "2", fs::last_write_time(path_));
  fs::rename(path_ + "2", path_);
  EXPECT_FALSE(memory_.Recall(File()).has_value()) << "inode";
  EXPECT_EQ(Digest(), digest);
  fs::resize_file(path_, kSize - 1);
  EXPECT_FALSE(memory_.Recall(File()).has_value()) << "size";
  EXPECT_EQ(Digest(), Computed());
}

TEST_F(DigestMemoryTest, AFewPlacesAreComparedEachTime) {
  const MappedFile file = File();  // keeps the present identity, and sees later changes
  memory_.Remember(file, {1, 2});
  EXPECT_EQ(memory_.Recall(file), (Digest128{1, 2}));
  Flip(kSize - 1);
  EXPECT_FALSE(memory_.Recall(file).has_value());
}

TEST_F(DigestMemoryTest, AMappedFileThatWasReplacedIsNotTakenForTheNewOne) {
  const MappedFile before = File();
  fs::copy_file(path_, path_ + "2");
  fs::rename(path_ + "2", path_);
  memory_.Remember(before, {1, 2});
  EXPECT_FALSE(memory_.Recall(File()).has_value());
}

TEST_F(DigestMemoryTest, WhatWasJustChangedIsNotRemembered) {
  const DigestMemory careful(root_ + "/careful", std::chrono::hours(1));
  const Digest128 digest = careful.Of(File(), pool_);
  EXPECT_EQ(digest, Computed());
  EXPECT_FALSE(careful.Recall(File()).has_value());
}

TEST_F(DigestMemoryTest, ADamagedRecordIsNoRecord) {
  const Digest128 digest = Digest();
  const std::string record = memory_.PathFor(path_);
  const auto size = static_cast<int64_t>(fs::file_size(record));
  for (int64_t offset = 0; offset < size; offset += 7) {
    memory_.Remember(File(), digest);
    std::fstream file(record, std::ios::binary | std::ios::in | std::ios::out);
    file.seekg(offset);
    const auto byte = static_cast<char>(file.get());
    file.seekp(offset);
    file.put(static_cast<char>(byte ^ 1));
    file.close();
    EXPECT_FALSE(memory_.Recall(File()).has_value()) << offset;
  }
  fs::resize_file(record, 20);
  EXPECT_FALSE(memory_.Recall(File()).has_value());
  EXPECT_EQ(Digest(), digest);
}

TEST_F(DigestMemoryTest, WithoutAFolderNothingIsRemembered) {
  const DigestMemory none("");
  EXPECT_EQ(none.Of(File(), pool_), Computed());
  EXPECT_FALSE(none.Recall(File()).has_value());
  const DigestMemory impossible(path_ + "/below", std::chrono::seconds(0));
  EXPECT_EQ(impossible.Of(File(), pool_), Computed());
}

TEST_F(DigestMemoryTest, EmptyFilesHaveADigest) {
  std::ofstream(path_, std::ios::trunc).close();
  const Digest128 digest = Digest();
  EXPECT_EQ(memory_.Recall(File()), digest);
}

}  // namespace
}  // namespace pagemill::program
