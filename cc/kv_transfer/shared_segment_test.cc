#include "cc/kv_transfer/shared_segment.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cc/kv_transfer/peer_segment.h"
#include "cc/kv_transfer/posix_file.h"
#include "gtest/gtest.h"

namespace pagemill::kv_transfer {
namespace {

using kv_cache::ContentKey;

constexpr size_t kPageBytes = 48;

SegmentFormat Format() { return {.fingerprint = {.low = 5, .high = 6}, .page_bytes = kPageBytes}; }

std::unique_ptr<SharedSegment> Make(int64_t num_slots, int64_t keep_ms = 100) {
  const int64_t bytes = SegmentBytes(static_cast<size_t>(num_slots), kPageBytes);
  auto made = SharedSegment::Create({.format = Format(), .bytes = bytes, .keep_ms = keep_ms});
  EXPECT_TRUE(made.ok()) << made.status().ToString();
  EXPECT_EQ((*made)->num_slots(), num_slots);
  return std::move(*made);
}

std::unique_ptr<PeerSegment> Open(const std::string& engine_id) {
  auto peer = PeerSegment::Open(engine_id, Format());
  EXPECT_TRUE(peer.ok()) << peer.status().ToString();
  return std::move(*peer);
}

ContentKey Key(uint64_t n) {
  ContentKey key;
  key.hash.words[0] = n;
  key.hash.words[3] = ~n;
  return key;
}

std::vector<std::byte> Bytes(uint64_t n) {
  std::vector<std::byte> bytes(kPageBytes);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(n * 7 + i);
  return bytes;
}

bool Put(SharedSegment* segment, uint64_t n, uint64_t number = 1, int64_t now_ms = 0) {
  const StatusOr<bool> put = segment->Put(Key(n), number, Bytes(n), now_ms);
  EXPECT_TRUE(put.ok()) << put.status().ToString();
  return *put;
}

// The bytes of a block as a reader gets them; empty if it does not.
std::vector<std::byte> Get(PeerSegment* peer, uint64_t n) {
  const std::optional<size_t> slot = peer->Find(Key(n));
  std::vector<std::byte> bytes(kPageBytes);
  if (!slot || !peer->Read(*slot, bytes).ok()) return {};
  return bytes;
}

TEST(SharedSegment, WhatIsPutCanBeRead) {
  const auto segment = Make(3);
  const auto peer = Open(segment->engine_id());
  EXPECT_TRUE(peer->IsAlive());
  EXPECT_EQ(peer->Refresh(), OkStatus());
  EXPECT_EQ(Get(peer.get(), 1), std::vector<std::byte>());
  EXPECT_TRUE(Put(segment.get(), 1));
  EXPECT_TRUE(Put(segment.get(), 2, 9));
  EXPECT_EQ(segment->SetDone(9), OkStatus());
  EXPECT_EQ(peer->Refresh(), OkStatus());
  EXPECT_EQ(peer->num_done(), 9u);
  EXPECT_EQ(Get(peer.get(), 1), Bytes(1));
  EXPECT_EQ(Get(peer.get(), 2), Bytes(2));
  EXPECT_EQ(peer->entries()[*peer->Find(Key(2))].number, 9u);
  EXPECT_EQ(segment->Forget(), OkStatus());
  EXPECT_EQ(peer->Refresh(), OkStatus());
  EXPECT_FALSE(peer->Find(Key(1)));
}

TEST(SharedSegment, ASlotIsFreeWhenItWasTakenOrKeptLongEnough) {
  const auto segment = Make(2, /*keep_ms=*/100);
  const auto peer = Open(segment->engine_id());
  EXPECT_TRUE(Put(segment.get(), 1, 1, 0));
  EXPECT_TRUE(Put(segment.get(), 2, 1, 50));
  EXPECT_FALSE(Put(segment.get(), 3, 1, 100));
  EXPECT_TRUE(Put(segment.get(), 1, 2, 100)) << "it is there, and kept for longer";
  ASSERT_EQ(peer->Refresh(), OkStatus());
  EXPECT_EQ(peer->MarkTaken(*peer->Find(Key(2))), OkStatus());
  EXPECT_TRUE(Put(segment.get(), 3, 2, 100));
  EXPECT_FALSE(Put(segment.get(), 4, 2, 200));
  EXPECT_EQ(Get(peer.get(), 2), std::vector<std::byte>()) << "the directory is old";
  EXPECT_TRUE(Put(segment.get(), 4, 2, 201));
  ASSERT_EQ(peer->Refresh(), OkStatus());
  EXPECT_EQ(Get(peer.get(), 4), Bytes(4));
}

TEST(SharedSegment, AMarkOfWhatWasThereBeforeFreesNothing) {
  const auto segment = Make(2);
  const auto slow = Open(segment->engine_id()), fast = Open(segment->engine_id());
  EXPECT_TRUE(Put(segment.get(), 1) && Put(segment.get(), 2));
  ASSERT_TRUE(slow->Refresh().ok() && fast->Refresh().ok());
  EXPECT_EQ(fast->MarkTaken(*fast->Find(Key(1))), OkStatus());
  EXPECT_TRUE(Put(segment.get(), 3));
  EXPECT_EQ(slow->MarkTaken(*slow->Find(Key(1))), OkStatus());
  EXPECT_FALSE(Put(segment.get(), 4));
}

TEST(SharedSegment, OtherModelsAndGarbageAreRefused) {
  const auto segment = Make(2);
  SegmentFormat other = Format();
  other.fingerprint.low = 4;
  EXPECT_EQ(PeerSegment::Open(segment->engine_id(), other).status().code(),
            StatusCode::kFailedPrecondition);
  other = Format();
  other.page_bytes += 8;
  EXPECT_EQ(PeerSegment::Open(segment->engine_id(), other).status().code(),
            StatusCode::kFailedPrecondition);
  EXPECT_EQ(PeerSegment::Open("../../etc/passwd", Format()).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(PeerSegment::Open(std::string(32, '0'), Format()).status().code(),
            StatusCode::kNotFound);
  EXPECT_EQ(SharedSegment::Create({.format = Format(), .bytes = 4300}).status().code(),
            StatusCode::kInvalidArgument);
}

TEST(SharedSegment, ASegmentThatIsCutGivesAStatus) {
  const auto segment = Make(2);
  EXPECT_TRUE(Put(segment.get(), 1));
  const auto peer = Open(segment->engine_id());
  ASSERT_EQ(peer->Refresh(), OkStatus());
  auto file = PosixFile::OpenShared(SegmentName(segment->engine_id()));
  ASSERT_TRUE(file->Resize(100).ok());
  std::vector<std::byte> bytes(kPageBytes);
  EXPECT_EQ(peer->Read(0, bytes).code(), StatusCode::kDataLoss);
  EXPECT_EQ(peer->Refresh().code(), StatusCode::kDataLoss);
  EXPECT_EQ(PeerSegment::Open(segment->engine_id(), Format()).status().code(),
            StatusCode::kDataLoss);
}

// Random puts, takes and flipped bytes: a reader gets the right bytes of a block, or none.
TEST(SharedSegment, ReadersNeverGetWrongBytes) {
  std::mt19937 random(1);
  int num_read = 0, num_refused = 0;
  for (int round = 0; round < 20; ++round) {
    const auto segment = Make(6, /*keep_ms=*/20);
    const auto peer = Open(segment->engine_id());
    auto file = PosixFile::OpenShared(SegmentName(segment->engine_id()));
    const int64_t size = *file->size();
    for (int now = 0; now < 300; ++now) {
      const uint32_t dice = random() % 10;
      if (dice < 4) {
        Put(segment.get(), random() % 12, 1 + now / 30, now);
      } else if (dice < 5) {
        ASSERT_TRUE(peer->Refresh().ok());
      } else if (dice < 6 && round % 2 == 1) {
        const std::byte garbage[] = {static_cast<std::byte>(random())};
        const auto at = kSegmentDirectoryAt + random() % (size - kSegmentDirectoryAt);
        ASSERT_TRUE(file->WriteAt(static_cast<int64_t>(at), garbage).ok());
      } else {
        const uint64_t n = random() % 12;
        const std::vector<std::byte> bytes = Get(peer.get(), n);
        ASSERT_TRUE(bytes.empty() || bytes == Bytes(n));
        ++(bytes.empty() ? num_refused : num_read);
        if (const auto slot = peer->Find(Key(n)); slot && random() % 2 == 0) {
          ASSERT_TRUE(peer->MarkTaken(*slot).ok());
        }
      }
    }
  }
  EXPECT_GT(num_read, 200);
  EXPECT_GT(num_refused, 200);
}

// The segment of a process that was killed. It may have been removed since.
std::unique_ptr<PeerSegment> OpenOfADeadProcess(std::string* engine_id) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    auto made = SharedSegment::Create(
        {.format = Format(), .bytes = SegmentBytes(4, kPageBytes), .keep_ms = 100});
    if (!made.ok() || !(*made)->Put(Key(1), 1, Bytes(1), 0).ok()) _exit(1);
    const std::string& id = (*made)->engine_id();
    if (write(ends[1], id.data(), id.size()) != 32) _exit(1);
    while (true) pause();
  }
  engine_id->resize(32);
  EXPECT_EQ(read(ends[0], engine_id->data(), 32), 32);
  std::unique_ptr<PeerSegment> peer = Open(*engine_id);
  EXPECT_TRUE(peer->IsAlive());
  EXPECT_EQ(kill(child, SIGKILL), 0);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
  close(ends[0]);
  close(ends[1]);
  return peer;
}

TEST(SharedSegment, TheSegmentOfADeadProcessIsReadAndRemoved) {
  std::string id;
  const auto peer = OpenOfADeadProcess(&id);
  EXPECT_FALSE(peer->IsAlive());
  EXPECT_EQ(PosixFile::OpenShared(SegmentName(id)).status().code(), StatusCode::kNotFound);
  ASSERT_EQ(peer->Refresh(), OkStatus());
  EXPECT_EQ(Get(peer.get(), 1), Bytes(1)) << "what it wrote is right";
}

TEST(SharedSegment, AStartRemovesSegmentsOfDeadProcesses) {
  std::string dead;
  (void)OpenOfADeadProcess(&dead);
  const auto alive = Make(2);
  const auto segment = Make(2);
  EXPECT_EQ(PosixFile::OpenShared(SegmentName(dead)).status().code(), StatusCode::kNotFound);
  EXPECT_TRUE(PosixFile::OpenShared(SegmentName(alive->engine_id())).ok());
}

}  // namespace
}  // namespace pagemill::kv_transfer
