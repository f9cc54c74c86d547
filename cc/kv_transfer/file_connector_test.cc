// Both sides of the file connector together.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "cc/kv_cache/connectors/file.h"
#include "cc/kv_cache/testing/made_query.h"
#include "cc/kv_transfer/file_medium.h"
#include "cc/step/fake_model.h"
#include "gtest/gtest.h"

namespace pagemill::kv_transfer {
namespace {

namespace fs = std::filesystem;
using Direction = kv_cache::KvTransfer::Direction;

constexpr kv_cache::GroupId kGroup{0};

kv_cache::BlockHash Hash(int i) {
  kv_cache::BlockHash hash;
  hash.words[0] = (static_cast<uint64_t>(i) + 1) * 0x9E3779B97F4A7C15u;
  return hash;
}

class FileTest : public testing::Test {
 protected:
  FileTest() {
    folder_ = testing::TempDir() + "/kv_files_" + std::to_string(::getpid()) + "_" +
              testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(folder_);
    medium_ = Medium({});
  }
  ~FileTest() override { fs::remove_all(folder_); }

  std::unique_ptr<FileMedium> Medium(FileMedium::Options options) {
    options.folder = folder_;
    if (options.fingerprint == Digest128()) options.fingerprint = {3, 4};
    return *FileMedium::Create(options, &model_);
  }

  void Fill(int block, int seed) {
    std::vector<std::byte> bytes(model_.page_bytes(kGroup));
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i + seed);
    EXPECT_EQ(model_.Write(kGroup, kv_cache::BlockId(block), bytes), OkStatus());
  }
  std::vector<std::byte> Read(int block) {
    std::vector<std::byte> bytes(model_.page_bytes(kGroup));
    EXPECT_EQ(model_.Read(kGroup, kv_cache::BlockId(block), bytes), OkStatus());
    return bytes;
  }

  std::vector<kv_cache::KvTransfer> Transfer(Direction direction, int begin, int end,
                                             int first_page) {
    std::vector<kv_cache::BlockContent> blocks;
    for (int i = begin; i < end; ++i) {
      blocks.push_back({Hash(i), kGroup, kv_cache::BlockId(first_page + i - begin)});
    }
    std::vector<kv_cache::KvTransfer> transfers;
    connector_->Transfer(direction, blocks, &transfers);
    return transfers;
  }
  Status Finish(const std::vector<kv_cache::KvTransfer>& transfers) {
    Status last;
    for (const kv_cache::KvTransfer& transfer : transfers) {
      const kv_cache::KvTransferResult result = medium_->Run(transfer);
      last = result.status;
      connector_->Finish(transfer, result);
      EXPECT_EQ(connector_->CheckIntegrity(), OkStatus());
    }
    return last;
  }
  // Repeats the lookup until there is an answer.
  int32_t Lookup(int begin, int end) {
    std::vector<kv_cache::BlockHash> hashes;
    for (int i = begin; i < end; ++i) hashes.push_back(Hash(i));
    return Answer(kv_cache::MadeQuery(hashes));
  }
  int32_t Answer(const kv_cache::MadeQuery& made) {
    for (int tries = 0; tries < 5; ++tries) {
      std::vector<kv_cache::KvTransfer> probes;
      const kv_cache::ConnectorMatch match =
          connector_->Lookup(step::Request(), made.query(), &probes);
      if (!match.ask_again) return match.num_blocks;
      EXPECT_FALSE(probes.empty());
      EXPECT_EQ(Finish(probes), OkStatus());
    }
    ADD_FAILURE() << "no answer";
    return -1;
  }
  std::string PathOf(int i) const {
    return medium_->PathOf({Hash(i), kGroup, kv_cache::kNullBlock});
  }

  std::string folder_;
  step::FakeModel model_{step::FakeModel::Options{}};
  std::unique_ptr<FileMedium> medium_;
  std::unique_ptr<kv_cache::FileConnector> connector_ =
      std::make_unique<kv_cache::FileConnector>(kv_cache::FileConnector::Options{});
};

TEST_F(FileTest, ALookupProbesAndThenKnows) {
  EXPECT_EQ(Lookup(0, 3), 0);
  EXPECT_EQ(Finish(Transfer(Direction::kStore, 0, 2, 1)), OkStatus());
  EXPECT_EQ(Lookup(0, 3), 2);
  EXPECT_EQ(connector_->stats().kv_blocks_stored, 2u);
}

TEST_F(FileTest, BlocksOutliveTheProcessThatWroteThem) {
  Fill(1, 10);
  Fill(2, 20);
  EXPECT_EQ(Finish(Transfer(Direction::kStore, 0, 2, 1)), OkStatus());
  connector_ = std::make_unique<kv_cache::FileConnector>(kv_cache::FileConnector::Options{});
  medium_ = Medium({});
  EXPECT_EQ(Lookup(0, 3), 2);
  EXPECT_EQ(Finish(Transfer(Direction::kLoad, 0, 2, 5)), OkStatus());
  EXPECT_EQ(Read(5), Read(1));
  EXPECT_EQ(Read(6), Read(2));
}

TEST_F(FileTest, BlocksOnTheirWayAreAskedForAgain) {
  const auto store = Transfer(Direction::kStore, 0, 1, 1);
  std::vector<kv_cache::KvTransfer> probes;
  const kv_cache::MadeQuery made({Hash(0)});
  EXPECT_TRUE(connector_->Lookup(step::Request(), made.query(), &probes).ask_again);
  EXPECT_TRUE(probes.empty()) << "the store will answer";
  EXPECT_EQ(Finish(store), OkStatus());
  EXPECT_EQ(Lookup(0, 1), 1);
}

// Another process has written all blocks of full layers and some of a window of one block.
TEST_F(FileTest, AWindowIsProbedWhereItEnds) {
  std::vector<kv_cache::BlockContent> blocks;
  std::vector<kv_cache::BlockHash> hashes;
  for (int i = 0; i < 8; ++i) {
    hashes.push_back(Hash(i));
    if (i < 6) blocks.push_back({Hash(i), kGroup, kv_cache::BlockId(1)});
    if (i == 2 || i == 3 || i == 7) {
      blocks.push_back({Hash(i), kv_cache::GroupId(1), kv_cache::BlockId(2)});
    }
  }
  std::vector<kv_cache::KvTransfer> stores;
  connector_->Transfer(Direction::kStore, blocks, &stores);
  EXPECT_EQ(Finish(stores), OkStatus());
  connector_ = std::make_unique<kv_cache::FileConnector>(kv_cache::FileConnector::Options{});
  const std::vector<step::KvGroupOptions> groups = {{.kind = "full"},
                                                    {.kind = "sliding_window", .window_tokens = 4}};
  EXPECT_EQ(Answer(kv_cache::MadeQuery(hashes, groups)), 4);
  // Blocks that were missing are probed again.
  const kv_cache::BlockContent late[] = {{Hash(5), kv_cache::GroupId(1), kv_cache::BlockId(2)}};
  stores.clear();
  auto other = std::make_unique<kv_cache::FileConnector>(kv_cache::FileConnector::Options{});
  other->Transfer(Direction::kStore, late, &stores);
  EXPECT_EQ(medium_->Run(stores[0]).status, OkStatus());
  EXPECT_EQ(Answer(kv_cache::MadeQuery(hashes, groups)), 6);
}

TEST_F(FileTest, WhatIsThereIsNotWrittenAgain) {
  EXPECT_EQ(Finish(Transfer(Direction::kStore, 0, 1, 1)), OkStatus());
  EXPECT_TRUE(Transfer(Direction::kStore, 0, 1, 1).empty());
}

TEST_F(FileTest, StoresAreDroppedWhileTooManyBlocksAreInFlight) {
  EXPECT_EQ(Transfer(Direction::kStore, 0, 50, 1)[0].blocks.size(), 50u);
  EXPECT_EQ(Transfer(Direction::kStore, 50, 300, 1)[0].blocks.size(), 206u);
  EXPECT_EQ(connector_->stats().kv_blocks_dropped, 44u);
}

TEST_F(FileTest, ADamagedFileFailsItsLoadAndIsRemoved) {
  EXPECT_EQ(Finish(Transfer(Direction::kStore, 0, 3, 1)), OkStatus());
  {
    std::fstream file(PathOf(1), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(100);
    file.put('x');
  }
  const auto before = Read(6);
  const auto load = Transfer(Direction::kLoad, 0, 3, 5);
  const kv_cache::KvTransferResult result = medium_->Run(load[0]);
  EXPECT_EQ(result.status, DataLoss("a damaged KV block (checksum)"));
  EXPECT_EQ(result.num_blocks_done, 1);
  EXPECT_EQ(Read(6), before);
  EXPECT_FALSE(fs::exists(PathOf(1)));
  connector_->Finish(load[0], result);
  EXPECT_EQ(Lookup(0, 3), 1);
}

TEST_F(FileTest, ATruncatedFileAndOneOfAnotherModelFailTheirLoads) {
  EXPECT_EQ(Finish(Transfer(Direction::kStore, 0, 2, 1)), OkStatus());
  fs::resize_file(PathOf(0), 50);
  EXPECT_EQ(Finish(Transfer(Direction::kLoad, 0, 1, 5)).code(), StatusCode::kDataLoss);
  medium_ = Medium({.fingerprint = {9, 9}});
  EXPECT_EQ(Finish(Transfer(Direction::kLoad, 1, 2, 5)),
            DataLoss("a KV block of another model or layout"));
}

TEST_F(FileTest, AFileThatIsGoneFailsItsLoad) {
  EXPECT_EQ(Finish(Transfer(Direction::kStore, 0, 1, 1)), OkStatus());
  fs::remove(PathOf(0));
  EXPECT_EQ(Lookup(0, 1), 1);
  EXPECT_EQ(Finish(Transfer(Direction::kLoad, 0, 1, 5)).code(), StatusCode::kNotFound);
  EXPECT_EQ(Lookup(0, 1), 0);
}

TEST_F(FileTest, TheFolderIsBounded) {
  medium_ = Medium({.max_bytes = 300});  // a block takes 96 + 48 bytes
  EXPECT_EQ(Finish(Transfer(Direction::kStore, 0, 3, 1)).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(Lookup(0, 3), 2);
  medium_ = Medium({.max_bytes = 300});
  EXPECT_EQ(Finish(Transfer(Direction::kStore, 2, 3, 1)).code(), StatusCode::kResourceExhausted)
      << "files of an earlier process count";
}

TEST_F(FileTest, NoTemporaryFilesAreLeft) {
  EXPECT_EQ(Finish(Transfer(Direction::kStore, 0, 9, 1)), OkStatus());
  int num_files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder_)) {
    if (!entry.is_regular_file()) continue;
    ++num_files;
    EXPECT_NE(entry.path().extension(), ".tmp");
  }
  EXPECT_EQ(num_files, 9);
}

TEST_F(FileTest, AResetRemovesAllFilesThoseOfStoresUnderWayToo) {
  EXPECT_EQ(Finish(Transfer(Direction::kStore, 0, 2, 1)), OkStatus());
  EXPECT_EQ(Lookup(0, 2), 2);
  const auto store = Transfer(Direction::kStore, 2, 4, 3);
  std::vector<kv_cache::KvTransfer> forget;
  EXPECT_TRUE(connector_->Reset(&forget));
  ASSERT_EQ(forget.size(), 1u);
  EXPECT_EQ(Lookup(0, 4), 0) << "without a probe";
  EXPECT_TRUE(Transfer(Direction::kStore, 4, 5, 5).empty()) << "it would be removed";
  EXPECT_EQ(Finish(store), OkStatus());
  EXPECT_TRUE(fs::exists(PathOf(2)));
  EXPECT_EQ(Finish(forget), OkStatus());
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(fs::exists(PathOf(i))) << i;
  EXPECT_EQ(Lookup(0, 4), 0);
  EXPECT_EQ(Finish(Transfer(Direction::kStore, 0, 2, 1)), OkStatus()) << "it is used again";
  EXPECT_EQ(Lookup(0, 4), 2);
}

TEST_F(FileTest, AFolderWhoseFilesCannotBeRemovedIsNotUsed) {
  EXPECT_EQ(Finish(Transfer(Direction::kStore, 0, 2, 1)), OkStatus());
  std::vector<kv_cache::KvTransfer> forget;
  EXPECT_TRUE(connector_->Reset(&forget));
  connector_->Finish(forget[0], {forget[0].id, 0, DataLoss("injected")});
  EXPECT_EQ(Lookup(0, 2), 0);
  EXPECT_TRUE(Transfer(Direction::kStore, 4, 5, 5).empty());
}

TEST_F(FileTest, WhatAProcessThatDiedForgotIsRemoved) {
  const std::string left = folder_ + ".forgotten.abcdef";
  const std::string other = folder_ + "2.forgotten.abcdef";  // of another folder
  fs::create_directories(left + "/ab");
  fs::create_directories(other);
  medium_ = Medium({});
  EXPECT_FALSE(fs::exists(left));
  EXPECT_TRUE(fs::exists(other));
  fs::remove_all(other);
}

TEST_F(FileTest, AFolderThatCannotBeMadeIsRefused) {
  EXPECT_EQ(FileMedium::Create({.folder = "/proc/nothing"}, &model_).status().code(),
            StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace pagemill::kv_transfer
