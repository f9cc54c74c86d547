#include "cc/runner/ranks/rank_pages.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cc/comm/shared_memory_world.h"
#include "cc/program/executor.h"
#include "cc/program/testing/batch_builder.h"
#include "cc/runner/ranks/page_segment.h"
#include "cc/runner/ranks/rank_steps.h"
#include "cc/step/page_store.h"

namespace pagemill::runner {
namespace {

using std::chrono::milliseconds;
using step::BlockId;
using step::GroupId;

constexpr size_t kPage = 5000;
constexpr int32_t kBlocks = 8;
constexpr milliseconds kShort{50};

std::vector<std::byte> Bytes(size_t size, int seed) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(seed + i * 31 + i / 256);
  return bytes;
}

// Pages in memory; may fail.
class MemoryPages final : public step::PageStore {
 public:
  explicit MemoryPages(size_t page_bytes = kPage) : page_bytes_(page_bytes) {
    pages.resize(kBlocks, std::vector<std::byte>(page_bytes));
  }
  size_t page_bytes(GroupId) const override { return page_bytes_; }
  Status Read(GroupId, BlockId block, std::span<std::byte> to) const override {
    if (!failure.ok()) return failure;
    std::ranges::copy(pages[static_cast<size_t>(block.value())], to.begin());
    return OkStatus();
  }
  Status Write(GroupId, BlockId block, std::span<const std::byte> from) override {
    if (!failure.ok()) return failure;
    pages[static_cast<size_t>(block.value())].assign(from.begin(), from.end());
    return OkStatus();
  }

  std::vector<std::vector<std::byte>> pages;
  Status failure;

 private:
  const size_t page_bytes_;
};

// Ranks as threads of this process.
struct Ranks {
  explicit Ranks(int32_t num_ranks, milliseconds limit = LeadingPages::kLimit)
      : segment(*PageSegment::Create(num_ranks, kPage)), stores(static_cast<size_t>(num_ranks)) {
    for (int32_t rank = 1; rank < num_ranks; ++rank) {
      EXPECT_TRUE(segment->Join(rank).ok());
      servers.push_back(*PageServer::Start(segment, rank, &stores[static_cast<size_t>(rank)]));
    }
    leading = *LeadingPages::Create(segment, stores.data(), limit);
  }
  Status Read(std::vector<std::byte>* to) const {
    to->resize(leading->page_bytes(GroupId(0)));
    return leading->Read(GroupId(0), BlockId(3), *to);
  }

  std::shared_ptr<PageSegment> segment;
  std::vector<MemoryPages> stores;
  std::vector<std::unique_ptr<PageServer>> servers;
  std::unique_ptr<LeadingPages> leading;
};

TEST(RankPagesTest, APageIsThoseOfAllRanksInTheirOrder) {
  Ranks ranks(3);
  ASSERT_EQ(ranks.leading->page_bytes(GroupId(0)), 3 * kPage);
  const std::vector<std::byte> page = Bytes(3 * kPage, 1);
  ASSERT_TRUE(ranks.leading->Write(GroupId(0), BlockId(3), page).ok());
  for (size_t rank = 0; rank < 3; ++rank) {
    const auto part = std::span(page).subspan(rank * kPage, kPage);
    EXPECT_TRUE(std::ranges::equal(ranks.stores[rank].pages[3], part));
    EXPECT_EQ(ranks.stores[rank].pages[2], std::vector<std::byte>(kPage)) << "another block";
  }
  std::vector<std::byte> read;
  ASSERT_TRUE(ranks.Read(&read).ok());
  EXPECT_EQ(read, page);
  EXPECT_TRUE(ranks.leading->regions().empty()) << "they lie in several processes";
}

TEST(RankPagesTest, SeveralThreadsCopyAtTheSameTime) {
  Ranks ranks(2);
  std::vector<std::thread> threads;
  for (int32_t block = 0; block < 6; ++block) {
    threads.emplace_back([&ranks, block] {
      for (int round = 0; round < 20; ++round) {
        const std::vector<std::byte> page = Bytes(2 * kPage, block * 20 + round);
        std::vector<std::byte> read(2 * kPage);
        EXPECT_TRUE(ranks.leading->Write(GroupId(0), BlockId(block), page).ok());
        EXPECT_TRUE(ranks.leading->Read(GroupId(0), BlockId(block), read).ok());
        EXPECT_EQ(read, page);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(RankPagesTest, ACopyWaitsForTheStepsThatRank0HasCollected) {
  Ranks ranks(2);
  ranks.leading->CountCollected();
  std::vector<std::byte> read;
  std::future<Status> status = std::async(std::launch::async, [&] { return ranks.Read(&read); });
  EXPECT_EQ(status.wait_for(kShort), std::future_status::timeout);
  ranks.stores[1].pages[3] = Bytes(kPage, 7);  // the last layer of that step
  ranks.servers[0]->CountCollected();
  ASSERT_TRUE(status.get().ok());
  EXPECT_TRUE(std::ranges::equal(std::span(read).subspan(kPage), Bytes(kPage, 7)));
}

TEST(RankPagesTest, AFailureOfARankNamesItAndIsThatOfOneCopy) {
  Ranks ranks(3);
  std::vector<std::byte> read;
  ranks.stores[2].failure = Internal("the device is lost");
  EXPECT_EQ(ranks.Read(&read), Internal("rank 2 of 3: the device is lost"));
  ranks.stores[0].failure = Internal("this one, too");
  EXPECT_EQ(ranks.leading->Write(GroupId(0), BlockId(1), read), Internal("this one, too"));
  ranks.stores[0].failure = ranks.stores[2].failure = OkStatus();
  EXPECT_TRUE(ranks.Read(&read).ok());
}

TEST(RankPagesTest, AServerThatEndsAnswersWhatWaits) {
  Ranks ranks(2);
  ranks.leading->CountCollected();
  std::vector<std::byte> read;
  std::future<Status> status = std::async(std::launch::async, [&] { return ranks.Read(&read); });
  EXPECT_EQ(status.wait_for(kShort), std::future_status::timeout);
  ranks.servers.clear();
  EXPECT_EQ(status.get(), Unavailable("rank 1 of 2: it has left the group"));
}

TEST(RankPagesTest, PagesOfOtherSizesAreRefused) {
  const auto segment = *PageSegment::Create(2, kPage);
  MemoryPages small(kPage / 2);
  ASSERT_TRUE(segment->Join(1).ok());
  EXPECT_EQ(LeadingPages::Create(segment, &small).status().code(), StatusCode::kInternal);
  EXPECT_EQ(PageServer::Start(segment, 1, &small).status(),
            Internal("KV pages of rank 1 of 2 have 2500 bytes, not 5000: the ranks differ"));
}

TEST(RankPagesTest, RanksThatHaveNotJoinedAreNamed) {
  const auto segment = *PageSegment::Create(3, kPage);
  MemoryPages own;
  EXPECT_FALSE(segment->Join(0).ok());
  EXPECT_FALSE(segment->Join(3).ok());
  ASSERT_TRUE(segment->Join(1).ok());
  EXPECT_EQ(LeadingPages::Create(segment, &own).status(),
            FailedPrecondition("rank 2 of 3 has not joined those that copy pages"));
}

TEST(RankPagesTest, ASegmentHasABoundAndIsRecognized) {
  EXPECT_EQ(PageSegment::Create(1, kPage).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(PageSegment::Create(2, 0).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(PageSegment::Open(-1).status().code(), StatusCode::kInvalidArgument);
  const auto other = *comm::SharedSegment::Create({.topology = {.tensor = 2}});
  EXPECT_EQ(PageSegment::Open(other->fd()).status().code(), StatusCode::kInvalidArgument);
  const auto segment = *PageSegment::Create(2, kPage);
  EXPECT_EQ((*PageSegment::Open(segment->fd()))->page_bytes(), static_cast<int64_t>(kPage));
}

// Rank 1 as a process that serves its pages until a signal ends or stops it.
struct OtherProcess {
  OtherProcess() : segment(*PageSegment::Create(2, kPage)) {
    int ready[2];
    EXPECT_EQ(pipe(ready), 0);
    child = fork();
    if (child == 0) Serve(ready[1]);
    char byte = 0;
    EXPECT_EQ(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
  }
  [[noreturn]] void Serve(int ready) {
    MemoryPages pages;
    const auto same = *PageSegment::Open(segment->fd());
    const bool joined = same->Join(1).ok();
    const auto server = PageServer::Start(same, 1, &pages);
    if (!joined || !server.ok() || write(ready, "r", 1) != 1) _exit(1);
    while (true) pause();
  }
  // The signal that ended it.
  int Signal() const {
    int status = 0;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  }

  std::shared_ptr<PageSegment> segment;
  pid_t child = 0;
};

TEST(RankPagesTest, ARankThatDiesFailsThisCopyAndAllOthers) {
  OtherProcess other;
  MemoryPages own;
  const auto leading = *LeadingPages::Create(other.segment, &own);
  std::vector<std::byte> page = Bytes(2 * kPage, 4);
  ASSERT_TRUE(leading->Write(GroupId(0), BlockId(1), page).ok());
  kill(other.child, SIGKILL);
  const Status status = leading->Read(GroupId(0), BlockId(1), page);
  EXPECT_EQ(status,
            Unavailable("rank 1 of 2 (process " + std::to_string(other.child) + ") has died"));
  EXPECT_EQ(leading->Write(GroupId(0), BlockId(1), page), status);
  EXPECT_EQ(other.Signal(), SIGKILL);
}

TEST(RankPagesTest, ARankThatHangsIsEndedAtTheLimit) {
  OtherProcess other;
  MemoryPages own;
  const auto leading = *LeadingPages::Create(other.segment, &own, kShort);
  kill(other.child, SIGSTOP);
  int status = 0;
  ASSERT_EQ(waitpid(other.child, &status, WUNTRACED), other.child);
  std::vector<std::byte> page(2 * kPage);
  EXPECT_EQ(leading->Write(GroupId(0), BlockId(1), page),
            Unavailable("rank 1 of 2 (process " + std::to_string(other.child) +
                        ") did not copy a KV page within 50 ms, and was ended"));
  EXPECT_EQ(other.Signal(), SIGKILL);
}

// Counts what it has collected.
class Counter final : public program::Executor {
 public:
  Counter() : Executor(/*max_steps_in_flight=*/2) {}
  Status Enqueue(const ops::StepBatch&) override { return OkStatus(); }
  Status Collect(program::ExecutorOutput*) override {
    ++collected;
    return OkStatus();
  }
  int32_t collected = 0;
};

TEST(RankPagesTest, RanksCollectEachStepWhenRank0Does) {
  constexpr StepBounds kBounds = {
      .max_num_tokens = 8, .max_num_seqs = 2, .max_num_logits_rows = 2, .num_blocks = 4};
  Ranks ranks(2);
  const auto segment =
      *comm::SharedSegment::Create({.topology = {.tensor = 2}, .slot_bytes = 4096});
  Counter own, other;
  Status end;
  std::thread follower([&] {
    const comm::Groups groups = (*comm::SharedMemoryWorld::Join(segment, 1))->groups();
    end = FollowSteps(&other, *groups.at(comm::Axis::kTensor), kBounds, {}, nullptr,
                      ranks.servers[0].get());
  });
  {
    const comm::Groups groups = (*comm::SharedMemoryWorld::Join(segment, 0))->groups();
    LeadingExecutor leading(&own, groups.at(comm::Axis::kTensor), kBounds, {}, ranks.leading.get());
    program::testing::BatchBuilder batch(4, 4);
    batch.Add(0, 0, {5});
    program::ExecutorOutput output;
    std::vector<std::byte> read;
    for (int32_t steps = 1; steps < 4; ++steps) {
      ASSERT_TRUE(leading.Execute(batch.view(), &output).ok());
      ASSERT_TRUE(ranks.Read(&read).ok());
      EXPECT_EQ(other.collected, steps) << "the copy has waited for it";
    }
  }
  follower.join();
  EXPECT_TRUE(end.ok()) << end.ToString();
}

}  // namespace
}  // namespace pagemill::runner
