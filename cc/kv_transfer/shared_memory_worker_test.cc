// Two workers of one machine; blocks are numbered by their place in the sequence.
#include "cc/kv_transfer/shared_memory_worker.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace pagemill::kv_transfer {
namespace {

using kv_cache::BlockContent;
using kv_cache::GroupId;
using kv_cache::KvTransfer;
using kv_cache::KvTransferResult;
using kv_cache::TransferId;
using step::BlockId;
using Direction = KvTransfer::Direction;

constexpr size_t kPageBytes = 64;

// Pages in one piece of memory, which it offers or not.
class ArenaPages final : public step::PageStore {
 public:
  explicit ArenaPages(bool offers) : offers_(offers), bytes_(64 * kPageBytes) {}
  size_t page_bytes(GroupId) const override { return kPageBytes; }
  Status Read(GroupId, BlockId block, std::span<std::byte> to) const override {
    EXPECT_FALSE(offers_) << "the region needs no copy";
    std::memcpy(to.data(), At(block), to.size());
    return OkStatus();
  }
  Status Write(GroupId, BlockId block, std::span<const std::byte> from) override {
    std::memcpy(At(block), from.data(), from.size());
    return OkStatus();
  }
  std::vector<step::PageRegion> regions() const override {
    if (!offers_) return {};
    return {{std::span(bytes_), kPageBytes}};
  }
  std::byte* At(BlockId block) const { return &bytes_[block.value() * kPageBytes]; }

 private:
  const bool offers_;
  mutable std::vector<std::byte> bytes_;
};

struct Engine {
  explicit Engine(int64_t num_slots, int64_t keep_ms = 60'000, bool offers = true,
                  uint64_t fingerprint = 1)
      : pages(offers) {
    const SegmentFormat format{.fingerprint = {.low = fingerprint, .high = 2},
                               .page_bytes = kPageBytes};
    const int64_t bytes = SegmentBytes(static_cast<size_t>(num_slots), kPageBytes);
    auto made = SharedMemoryWorker::Create(
        {.segment = {.format = format, .bytes = bytes, .keep_ms = keep_ms}}, &pages);
    EXPECT_TRUE(made.ok()) << made.status().ToString();
    worker = std::move(*made);
  }

  // Blocks [begin, end) of a sequence, in pages from `page` on.
  static KvTransfer Make(Direction direction, uint64_t id, int begin, int end, int page) {
    KvTransfer transfer{.id = TransferId(id), .direction = direction, .medium = "shared_memory"};
    for (int i = begin; i < end; ++i, ++page) {
      transfer.blocks.push_back({.hash = {}, .group = GroupId(0), .block = BlockId(page)});
      transfer.blocks.back().hash.words[1] = static_cast<uint64_t>(i) + 1;
    }
    return transfer;
  }
  // Fills the pages of the blocks and sends them.
  void Send(uint64_t number, int begin, int end, int page = 1) {
    KvTransfer send = Make(Direction::kSend, number, begin, end, page);
    send.handover.number = number;
    for (const BlockContent& block : send.blocks) {
      std::memset(pages.At(block.block), static_cast<int>(block.hash.words[1]), kPageBytes);
    }
    worker->Start(send);
  }
  void Load(uint64_t id, const std::string& peer, uint64_t number, int begin, int end,
            int page = 1) {
    KvTransfer load = Make(Direction::kLoad, id, begin, end, page);
    load.handover = {peer, number};
    worker->Start(load);
  }
  KvTransferResult Wait() {
    std::vector<KvTransferResult> results;
    for (int i = 0; i < 30 && results.empty(); ++i) {
      worker->Wait(1'000'000);
      worker->Poll(&results);
    }
    EXPECT_EQ(results.size(), 1u);
    return results.empty() ? KvTransferResult() : results[0];
  }
  bool HasResult() {
    worker->Wait(30'000);
    std::vector<KvTransferResult> results;
    worker->Poll(&results);
    return !results.empty();
  }
  int Value(int page) const { return static_cast<int>(*pages.At(BlockId(page))); }

  ArenaPages pages;
  std::unique_ptr<SharedMemoryWorker> worker;
};

TEST(SharedMemoryWorker, BlocksComeAsTheyWereSent) {
  for (bool offers : {false, true}) {
    Engine sender(8, 60'000, offers), receiver(2, 60'000, offers);
    sender.Send(1, 0, 5);
    EXPECT_EQ(sender.Wait().status, OkStatus());
    receiver.Load(7, sender.worker->engine_id(), 1, 2, 5, /*page=*/20);
    const KvTransferResult result = receiver.Wait();
    EXPECT_EQ(result.status, OkStatus());
    EXPECT_EQ(result.num_blocks_done, 3);
    EXPECT_EQ(receiver.Value(20), 3);
    EXPECT_EQ(receiver.Value(22), 5);
  }
}

TEST(SharedMemoryWorker, ALoadWaitsForWhatIsNotSentYet) {
  Engine sender(8), receiver(2);
  receiver.Load(7, sender.worker->engine_id(), 1, 0, 3);
  EXPECT_FALSE(receiver.HasResult());
  sender.Send(1, 0, 3);
  EXPECT_EQ(receiver.Wait().status, OkStatus());
  EXPECT_EQ(receiver.Value(3), 3);
}

TEST(SharedMemoryWorker, MoreBlocksThanRoomPassThroughOneAfterAnother) {
  Engine sender(2), receiver(2);
  sender.Send(1, 0, 20);
  EXPECT_FALSE(sender.HasResult()) << "the blocks are held";
  receiver.Load(7, sender.worker->engine_id(), 1, 10, 20);  // it has the first ones
  EXPECT_EQ(receiver.Wait().status, OkStatus());
  EXPECT_EQ(sender.Wait().num_blocks_done, 20);
  EXPECT_EQ(receiver.Value(10), 20);
  sender.Send(2, 30, 32);
  EXPECT_EQ(sender.Wait().status, OkStatus()) << "nothing is left of the first one";
}

TEST(SharedMemoryWorker, HeldBlocksAreReleasedIfNoEngineTakesThem) {
  Engine sender(2, /*keep_ms=*/60'000);
  sender.Send(1, 0, 3);
  sender.Send(2, 10, 12, 10);
  EXPECT_FALSE(sender.HasResult());
  sender.worker->Abandon(TransferId(2));
  const KvTransferResult second = sender.Wait();
  EXPECT_EQ(second.id, TransferId(2));
  EXPECT_EQ(second.status.code(), StatusCode::kUnavailable);
  EXPECT_NE(second.status.message().find("--kv-shared-memory-bytes"), std::string::npos);
  sender.worker->Abandon(TransferId(1));
  EXPECT_EQ(sender.Wait().num_blocks_done, 2);
}

TEST(SharedMemoryWorker, BlocksThatNoEngineTakesGiveWayAfterAWhile) {
  Engine sender(2, /*keep_ms=*/20);
  sender.Send(1, 0, 2);
  EXPECT_EQ(sender.Wait().status, OkStatus());
  sender.Send(2, 10, 12, 10);
  EXPECT_EQ(sender.Wait().status, OkStatus());
}

TEST(SharedMemoryWorker, WhatDoesNotComeIsNotWaitedFor) {
  Engine sender(4), receiver(2), other(4, 60'000, true, /*fingerprint=*/9);
  sender.Send(1, 0, 2);
  EXPECT_EQ(sender.Wait().status, OkStatus());
  receiver.Load(1, sender.worker->engine_id(), 1, 0, 3);
  KvTransferResult result = receiver.Wait();
  EXPECT_EQ(result.status.code(), StatusCode::kNotFound) << "the handover is done";
  EXPECT_EQ(result.num_blocks_done, 2);
  receiver.Load(2, std::string(32, '0'), 1, 0, 3);
  EXPECT_EQ(receiver.Wait().status.code(), StatusCode::kNotFound) << "no such engine";
  receiver.Load(3, other.worker->engine_id(), 1, 0, 3);
  EXPECT_EQ(receiver.Wait().status.code(), StatusCode::kFailedPrecondition) << "another model";
  receiver.Load(4, sender.worker->engine_id(), 99, 5, 8);
  EXPECT_FALSE(receiver.HasResult());
  receiver.Load(5, sender.worker->engine_id(), 1, 5, 8);
  EXPECT_EQ(receiver.Wait().id, TransferId(5)) << "one that waits hinders no other";
  receiver.worker->Abandon(TransferId(4));
  EXPECT_EQ(receiver.Wait().status.code(), StatusCode::kUnavailable);
}

TEST(SharedMemoryWorker, AResetForgetsWhatWasSentAndWhatWaits) {
  Engine sender(2), receiver(2);
  sender.Send(1, 0, 2);
  EXPECT_EQ(sender.Wait().status, OkStatus());
  sender.Send(2, 10, 12, 10);
  EXPECT_FALSE(sender.HasResult());
  sender.worker->Start({.id = TransferId(3), .direction = Direction::kForget});
  std::vector<KvTransferResult> results;
  while (results.size() < 2) {
    sender.worker->Wait(1'000'000);
    sender.worker->Poll(&results);
  }
  EXPECT_EQ(results[0].status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(results[1].status, OkStatus());
  receiver.Load(7, sender.worker->engine_id(), 2, 0, 2);
  EXPECT_EQ(receiver.Wait().status.code(), StatusCode::kNotFound);
}

TEST(SharedMemoryWorker, APeerThatIsKilledInTheMiddleIsNotWaitedFor) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    // It wrote 4 of 8 blocks when it is killed.
    const SegmentFormat format{.fingerprint = {.low = 1, .high = 2}, .page_bytes = kPageBytes};
    auto made = SharedSegment::Create(
        {.format = format, .bytes = SegmentBytes(4, kPageBytes), .keep_ms = 60'000});
    const std::vector<std::byte> page(kPageBytes, std::byte{9});
    for (const BlockContent& block : Engine::Make(Direction::kSend, 1, 0, 4, 1).blocks) {
      if (!made.ok() || !(*made)->Put({block.hash, block.group}, 1, page, 0).ok()) _exit(1);
    }
    if (write(ends[1], (*made)->engine_id().data(), 32) != 32) _exit(1);
    while (true) pause();
  }
  std::string peer(32, ' ');
  ASSERT_EQ(read(ends[0], peer.data(), 32), 32);
  Engine receiver(2);
  receiver.Load(1, peer, 1, 0, 8);
  receiver.Load(2, peer, 1, 4, 8, /*page=*/20);
  EXPECT_FALSE(receiver.HasResult());
  ASSERT_EQ(kill(child, SIGKILL), 0);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  std::vector<KvTransferResult> results;
  for (int i = 0; i < 30 && results.size() < 2; ++i) {
    receiver.worker->Wait(1'000'000);
    receiver.worker->Poll(&results);
  }
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results[0].status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(results[0].num_blocks_done, 4);
  EXPECT_EQ(receiver.Value(4), 9);
  EXPECT_FALSE(results[1].status.ok()) << "all that wait for this peer end";
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace pagemill::kv_transfer
