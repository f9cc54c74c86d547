#include "cc/kv_transfer/session_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cc/step/fake_model.h"
#include "cc/step/page_store.h"
#include "gtest/gtest.h"

namespace pagemill::kv_transfer {
namespace {

namespace fs = std::filesystem;
constexpr kv_cache::GroupId kGroup{0};

kv_cache::BlockHash Hash(uint64_t i) {
  kv_cache::BlockHash hash;
  hash.words[0] = i + 1;
  return hash;
}

class SessionFileTest : public testing::Test {
 protected:
  SessionFileTest() {
    path_ = testing::TempDir() + "/session_" + std::to_string(::getpid()) + "_" +
            testing::UnitTest::GetInstance()->current_test_info()->name();
    layout_ = {.fingerprint = {5, 6}, .block_size = 4, .page_bytes = {model_.page_bytes(kGroup)}};
    for (int i = 0; i < 3; ++i) {
      contents_.push_back({Hash(static_cast<uint64_t>(i)), kGroup, kv_cache::BlockId(i + 1)});
      std::vector<std::byte> bytes(model_.page_bytes(kGroup), static_cast<std::byte>(i + 40));
      EXPECT_EQ(model_.Write(kGroup, kv_cache::BlockId(i + 1), bytes), OkStatus());
    }
  }
  ~SessionFileTest() override { fs::remove(path_); }

  Status Write() { return WriteSession(path_, layout_, tokens_, 12, contents_, model_); }
  std::string Contents() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void Replace(const std::string& bytes) const {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes;
  }
  // Opens and reads everything; returns the first error.
  Status ReadAll() const {
    PAGEMILL_ASSIGN_OR_RETURN(const SessionReader reader, SessionReader::Open(path_, layout_));
    std::vector<std::byte> bytes(layout_.page_bytes[0]);
    for (const kv_cache::BlockContent& content : contents_) {
      PAGEMILL_RETURN_IF_ERROR(reader.Read({content.hash, content.group}, bytes));
      const auto expected = static_cast<std::byte>(content.block.value() + 39);
      if (std::count(bytes.begin(), bytes.end(), expected) != std::ssize(bytes)) {
        return Internal("other bytes than were saved");
      }
    }
    if (reader.num_cached_tokens() != 12) return Internal("another number of cached tokens");
    return reader.token_ids() == tokens_ ? OkStatus() : Internal("other tokens than were saved");
  }

  step::FakeModel model_{step::FakeModel::Options{}};
  std::string path_;
  SessionLayout layout_;
  std::vector<int32_t> tokens_ = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13};
  std::vector<kv_cache::BlockContent> contents_;
};

TEST_F(SessionFileTest, WhatIsReadIsWhatWasSaved) {
  ASSERT_EQ(Write(), OkStatus());
  EXPECT_EQ(ReadAll(), OkStatus());
  ASSERT_EQ(Write(), OkStatus()) << "a session may be saved again";
}

TEST_F(SessionFileTest, NoFileIsNotFound) {
  EXPECT_EQ(SessionReader::Open(path_, layout_).status().code(), StatusCode::kNotFound);
}

TEST_F(SessionFileTest, AnotherModelOrLayoutIsRefused) {
  ASSERT_EQ(Write(), OkStatus());
  SessionLayout other = layout_;
  other.fingerprint.low = 7;
  EXPECT_EQ(SessionReader::Open(path_, other).status(),
            FailedPrecondition("\"" + path_ + "\" was saved with another model, or with " +
                               "other ranks (--tensor-parallel-size)"));
  other = layout_;
  other.block_size = 8;
  EXPECT_EQ(SessionReader::Open(path_, other).status().code(), StatusCode::kFailedPrecondition);
  other = layout_;
  other.page_bytes.push_back(48);
  EXPECT_EQ(SessionReader::Open(path_, other).status().code(), StatusCode::kFailedPrecondition);
}

TEST_F(SessionFileTest, EveryFlippedByteIsNoticed) {
  ASSERT_EQ(Write(), OkStatus());
  const std::string whole = Contents();
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x41);
    Replace(damaged);
    EXPECT_FALSE(ReadAll().ok()) << "byte " << i;
  }
}

TEST_F(SessionFileTest, EveryTruncationAndAnyAppendixIsNoticed) {
  ASSERT_EQ(Write(), OkStatus());
  const std::string whole = Contents();
  for (size_t size = 0; size < whole.size(); size += 5) {
    Replace(whole.substr(0, size));
    EXPECT_EQ(SessionReader::Open(path_, layout_).status().code(), StatusCode::kDataLoss) << size;
  }
  Replace(whole + "x");
  EXPECT_EQ(SessionReader::Open(path_, layout_).status().code(), StatusCode::kDataLoss);
}

TEST_F(SessionFileTest, RandomGarbageBehindAValidBeginningIsRefused) {
  ASSERT_EQ(Write(), OkStatus());
  const std::string whole = Contents();
  std::mt19937 random(3);
  for (int i = 0; i < 150; ++i) {
    std::string bytes = whole.substr(0, 32 + random() % 64);
    const size_t size = random() % 600;
    while (bytes.size() < size) bytes += static_cast<char>(random());
    Replace(bytes);
    EXPECT_FALSE(SessionReader::Open(path_, layout_).ok());
  }
}

TEST_F(SessionFileTest, AFailedSaveLeavesTheOldFileAndNoTemporaryOne) {
  ASSERT_EQ(Write(), OkStatus());
  const std::string other = path_ + "_folder";
  fs::create_directory(other);
  EXPECT_FALSE(WriteSession(other, layout_, tokens_, 12, contents_, model_).ok());
  EXPECT_FALSE(WriteSession("/nowhere/x", layout_, tokens_, 12, contents_, model_).ok());
  fs::remove(other);
  int num_files = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(path_).parent_path())) {
    num_files += entry.path().filename().string().starts_with(fs::path(path_).filename().string());
  }
  EXPECT_EQ(num_files, 1);
  EXPECT_EQ(ReadAll(), OkStatus());
}

// Saves the same session once more while a page is read.
class SavesMeanwhile final : public step::PageStore {
 public:
  SavesMeanwhile(const step::PageStore* pages, std::function<void()> save)
      : pages_(pages), save_(std::move(save)) {}
  size_t page_bytes(step::GroupId group) const override { return pages_->page_bytes(group); }
  Status Read(step::GroupId group, step::BlockId block, std::span<std::byte> to) const override {
    save_();
    return pages_->Read(group, block, to);
  }
  Status Write(step::GroupId, step::BlockId, std::span<const std::byte>) override {
    return OkStatus();
  }

 private:
  const step::PageStore* const pages_;
  const std::function<void()> save_;
};

TEST_F(SessionFileTest, TwoSavesOfOneFileDoNotMix) {
  const SavesMeanwhile pages(&model_, [this] {
    EXPECT_EQ(Write(), OkStatus());
    EXPECT_EQ(ReadAll(), OkStatus());
  });
  EXPECT_EQ(WriteSession(path_, layout_, tokens_, 12, contents_, pages), OkStatus());
  EXPECT_EQ(ReadAll(), OkStatus());
}

TEST_F(SessionFileTest, APipeIsRefusedAndNotWaitedFor) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(SessionReader::Open(path_, layout_).status(),
            InvalidArgument("\"" + path_ + "\" is not a file"));
}

}  // namespace
}  // namespace pagemill::kv_transfer
