// Two workers of one machine.
#include "cc/kv_transfer/handover_worker.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "cc/kv_transfer/handover_test_engine.h"
#include "gtest/gtest.h"

namespace pagemill::kv_transfer {
namespace {

using kv_cache::BlockContent;
using kv_cache::KvTransfer;
using kv_cache::KvTransferResult;
using kv_cache::TransferId;
using Direction = KvTransfer::Direction;

TEST(HandoverWorker, BlocksComeAsTheyWereSent) {
  for (bool offers : {false, true}) {
    TestEngine sender({.num_slots = 8, .offers = offers});
    TestEngine receiver({.num_slots = 2, .offers = offers});
    sender.Send(1, 0, 5);
    EXPECT_EQ(sender.Wait().status, OkStatus());
    receiver.Load(7, sender.Handover(1), 2, 5, /*page=*/20);
    const KvTransferResult result = receiver.Wait();
    EXPECT_EQ(result.status, OkStatus());
    EXPECT_EQ(result.num_blocks_done, 3);
    EXPECT_EQ(receiver.Value(20), 3);
    EXPECT_EQ(receiver.Value(22), 5);
  }
}

TEST(HandoverWorker, ALoadWaitsForWhatIsNotSentYet) {
  TestEngine sender({.num_slots = 8}), receiver({.num_slots = 2});
  receiver.Load(7, sender.Handover(1), 0, 3);
  EXPECT_FALSE(receiver.HasResult());
  sender.Send(1, 0, 3);
  EXPECT_EQ(receiver.Wait().status, OkStatus());
  EXPECT_EQ(receiver.Value(3), 3);
}

TEST(HandoverWorker, MoreBlocksThanRoomPassThroughOneAfterAnother) {
  TestEngine sender({.num_slots = 2}), receiver({.num_slots = 2});
  sender.Send(1, 0, 20);
  EXPECT_FALSE(sender.HasResult()) << "the blocks are held";
  receiver.Load(7, sender.Handover(1), 10, 20);  // it has the first ones
  EXPECT_EQ(receiver.Wait().status, OkStatus());
  EXPECT_EQ(sender.Wait().num_blocks_done, 20);
  EXPECT_EQ(receiver.Value(10), 20);
  sender.Send(2, 30, 32);
  EXPECT_EQ(sender.Wait().status, OkStatus()) << "nothing is left of the first one";
}

TEST(HandoverWorker, HeldBlocksAreReleasedIfNoEngineTakesThem) {
  TestEngine sender({.num_slots = 2});
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

TEST(HandoverWorker, BlocksThatNoEngineTakesGiveWayAfterAWhile) {
  TestEngine sender({.num_slots = 2, .keep_ms = 20});
  sender.Send(1, 0, 2);
  EXPECT_EQ(sender.Wait().status, OkStatus());
  sender.Send(2, 10, 12, 10);
  EXPECT_EQ(sender.Wait().status, OkStatus());
}

TEST(HandoverWorker, WhatDoesNotComeIsNotWaitedFor) {
  TestEngine sender({.num_slots = 4}), receiver({.num_slots = 2});
  TestEngine other({.num_slots = 4, .fingerprint = 9});
  sender.Send(1, 0, 2);
  EXPECT_EQ(sender.Wait().status, OkStatus());
  receiver.Load(1, sender.Handover(1), 0, 3);
  KvTransferResult result = receiver.Wait();
  EXPECT_EQ(result.status.code(), StatusCode::kNotFound) << "the handover is done";
  EXPECT_EQ(result.num_blocks_done, 2);
  receiver.Load(2, {.peer = std::string(32, '0'), .number = 1}, 0, 3);
  EXPECT_EQ(receiver.Wait().status.code(), StatusCode::kNotFound) << "no such engine";
  receiver.Load(3, other.Handover(1), 0, 3);
  EXPECT_EQ(receiver.Wait().status.code(), StatusCode::kFailedPrecondition) << "another model";
  receiver.Load(4, sender.Handover(99), 5, 8);
  EXPECT_FALSE(receiver.HasResult());
  receiver.Load(5, sender.Handover(1), 5, 8);
  EXPECT_EQ(receiver.Wait().id, TransferId(5)) << "one that waits hinders no other";
  receiver.worker->Abandon(TransferId(4));
  EXPECT_EQ(receiver.Wait().status.code(), StatusCode::kUnavailable);
}

TEST(HandoverWorker, AResetForgetsWhatWasSentAndWhatWaits) {
  TestEngine sender({.num_slots = 2}), receiver({.num_slots = 2});
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
  receiver.Load(7, sender.Handover(2), 0, 2);
  EXPECT_EQ(receiver.Wait().status.code(), StatusCode::kNotFound);
}

TEST(HandoverWorker, APeerThatIsKilledInTheMiddleIsNotWaitedFor) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    // It wrote 4 of 8 blocks when it is killed.
    const SegmentFormat format{.fingerprint = {.low = 1, .high = 2}, .page_bytes = kTestPageBytes};
    auto made = SharedSegment::Create(
        {.format = format, .bytes = SegmentBytes(4, kTestPageBytes), .keep_ms = 60'000});
    const std::vector<std::byte> page(kTestPageBytes, std::byte{9});
    for (const BlockContent& block : TestEngine::Make(Direction::kSend, 1, 0, 4, 1).blocks) {
      if (!made.ok() || !(*made)->Put({block.hash, block.group}, 1, page, 0).ok()) _exit(1);
    }
    if (write(ends[1], (*made)->engine_id().data(), 32) != 32) _exit(1);
    while (true) pause();
  }
  std::string peer(32, ' ');
  ASSERT_EQ(read(ends[0], peer.data(), 32), 32);
  TestEngine receiver({.num_slots = 2});
  receiver.Load(1, {.peer = peer, .number = 1}, 0, 8);
  receiver.Load(2, {.peer = peer, .number = 1}, 4, 8, /*page=*/20);
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
