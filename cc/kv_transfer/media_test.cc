// The worker side of the tiers, with the pages of a fake model.
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "cc/kv_cache/tiers/tiered_connector.h"
#include "cc/kv_transfer/copy_thread.h"
#include "cc/kv_transfer/disk_medium.h"
#include "cc/kv_transfer/host_medium.h"
#include "cc/kv_transfer/threaded_worker.h"
#include "cc/step/fake_model.h"
#include "gtest/gtest.h"

namespace pagemill::kv_transfer {
namespace {

using Direction = kv_cache::KvTransfer::Direction;

constexpr kv_cache::GroupId kGroup{0};

std::vector<std::byte> Bytes(const step::PageStore& pages, int seed) {
  std::vector<std::byte> bytes(pages.page_bytes(kGroup));
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 + seed);
  return bytes;
}

std::vector<std::byte> Read(const step::PageStore& pages, int block) {
  std::vector<std::byte> bytes(pages.page_bytes(kGroup));
  EXPECT_EQ(pages.Read(kGroup, kv_cache::BlockId(block), bytes), OkStatus());
  return bytes;
}

kv_cache::KvTransfer Transfer(Direction direction, const char* medium, int block, int64_t slot) {
  static uint64_t id = 0;
  kv_cache::KvTransfer transfer;
  transfer.id = kv_cache::TransferId(++id);
  transfer.direction = direction;
  transfer.medium = medium;
  kv_cache::BlockHash hash;
  hash.words[0] = 77;
  transfer.blocks.push_back({hash, kGroup, kv_cache::BlockId(block)});
  transfer.medium_slots.push_back(slot);
  return transfer;
}

std::string TempPath(const std::string& name) {
  return testing::TempDir() + "/" + name + std::to_string(::getpid());
}

DiskMedium::Options DiskOptions(const std::string& name) {
  return {.path = TempPath(name), .num_slots = 4, .slot_bytes = 48};
}

// The number of CPUs that this thread may use.
int NumCpus() {
  cpu_set_t cpus;
  return sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? CPU_COUNT(&cpus) : 0;
}

// Counts its transfers and reports how its thread is scheduled.
class ObservedMedium final : public TransferMedium {
 public:
  struct Seen {
    std::vector<Direction> directions;
    int niceness = 0;
    int num_cpus = 0;  // that it may use
  };
  explicit ObservedMedium(Seen* seen) : seen_(seen) {}
  kv_cache::KvTransferResult Run(const kv_cache::KvTransfer& transfer) override {
    seen_->directions.push_back(transfer.direction);
    seen_->niceness = getpriority(PRIO_PROCESS, 0);
    seen_->num_cpus = NumCpus();
    if (transfer.direction == Direction::kLoad) {
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
    }
    return {transfer.id, 0, OkStatus()};
  }

 private:
  Seen* const seen_;
};

// The scheduling of a medium's thread with `num_step_threads`.
ObservedMedium::Seen SeenBeside(int32_t num_step_threads) {
  ObservedMedium::Seen seen;
  ThreadedWorker worker(num_step_threads);
  worker.Add("file", std::make_unique<ObservedMedium>(&seen));
  worker.Start(Transfer(Direction::kStore, "file", 1, 0));
  std::vector<kv_cache::KvTransferResult> results;
  while (results.empty()) {
    worker.Wait(1000);
    worker.Poll(&results);
  }
  return seen;
}

TEST(ThreadedWorker, ItsThreadsLeaveCpusToStepsIfThereAreMore) {
  const int all = NumCpus();
  EXPECT_EQ(SeenBeside(0).num_cpus, all);
  EXPECT_EQ(SeenBeside(1).num_cpus, all > 1 ? all - 1 : all);
  EXPECT_EQ(SeenBeside(all).num_cpus, all);
}

TEST(ThreadedWorker, ItsThreadsYieldToThoseThatCompute) {
  const ObservedMedium::Seen seen = SeenBeside(0);
  EXPECT_EQ(seen.niceness, std::min(getpriority(PRIO_PROCESS, 0) + kCopyThreadNiceness, 19));
}

TEST(ThreadedWorker, ItsDestructorDropsCopiesAndForgets) {
  ObservedMedium::Seen seen;
  {
    ThreadedWorker worker;
    worker.Add("file", std::make_unique<ObservedMedium>(&seen));
    worker.Start(Transfer(Direction::kLoad, "file", 1, 0));
    worker.Start(Transfer(Direction::kStore, "file", 2, 0));
    worker.Start(Transfer(Direction::kForget, "file", 1, 0));
    worker.Start(Transfer(Direction::kStore, "file", 3, 0));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the load has started
  }
  ASSERT_FALSE(seen.directions.empty());
  EXPECT_EQ(seen.directions.back(), Direction::kForget);
  EXPECT_LE(seen.directions.size(), 2u);
}

TEST(HostMedium, APageComesBackBitForBit) {
  step::FakeModel model({});
  HostMedium host(std::make_shared<HostArena>(4, model.page_bytes(kGroup)), &model);
  const auto bytes = Bytes(model, 1);
  ASSERT_EQ(model.Write(kGroup, kv_cache::BlockId(3), bytes), OkStatus());
  EXPECT_EQ(host.Run(Transfer(Direction::kStore, "host", 3, 2)).num_blocks_done, 1);
  EXPECT_EQ(host.Run(Transfer(Direction::kLoad, "host", 5, 2)).num_blocks_done, 1);
  EXPECT_EQ(Read(model, 5), bytes);
}

TEST(DiskMedium, APageComesBackBitForBit) {
  step::FakeModel model({});
  auto disk = *DiskMedium::Create(DiskOptions("disk"), &model, nullptr);
  EXPECT_FALSE(std::filesystem::exists(TempPath("disk"))) << "the file has no name";
  const auto bytes = Bytes(model, 2);
  ASSERT_EQ(model.Write(kGroup, kv_cache::BlockId(3), bytes), OkStatus());
  EXPECT_TRUE(disk->Run(Transfer(Direction::kStore, "disk", 3, 1)).status.ok());
  EXPECT_TRUE(disk->Run(Transfer(Direction::kLoad, "disk", 5, 1)).status.ok());
  EXPECT_EQ(Read(model, 5), bytes);
}

TEST(DiskMedium, ASlotWithOtherContentFailsTheLoadAndLeavesThePage) {
  step::FakeModel model({});
  auto disk = *DiskMedium::Create(DiskOptions("other"), &model, nullptr);
  const auto before = Read(model, 5);
  EXPECT_EQ(disk->Run(Transfer(Direction::kLoad, "disk", 5, 1)).status.code(),
            StatusCode::kDataLoss);
  EXPECT_TRUE(disk->Run(Transfer(Direction::kStore, "disk", 3, 1)).status.ok());
  kv_cache::KvTransfer load = Transfer(Direction::kLoad, "disk", 5, 1);
  load.blocks[0].hash.words[0] = 78;
  const kv_cache::KvTransferResult result = disk->Run(load);
  EXPECT_EQ(result.status, DataLoss("a KV block with other tokens"));
  EXPECT_EQ(result.num_blocks_done, 0);
  EXPECT_EQ(Read(model, 5), before);
}

TEST(DiskMedium, DemotesFromTheHostTier) {
  step::FakeModel model({});
  auto arena = std::make_shared<HostArena>(4, model.page_bytes(kGroup));
  HostMedium host(arena, &model);
  auto disk = *DiskMedium::Create(DiskOptions("demote"), &model, arena);
  const auto bytes = Bytes(model, 3);
  ASSERT_EQ(model.Write(kGroup, kv_cache::BlockId(3), bytes), OkStatus());
  EXPECT_TRUE(host.Run(Transfer(Direction::kStore, "host", 3, 2)).status.ok());
  kv_cache::KvTransfer demotion = Transfer(Direction::kDemote, "disk", 0, 1);
  demotion.source_slots = {2};
  EXPECT_TRUE(disk->Run(demotion).status.ok());
  EXPECT_TRUE(disk->Run(Transfer(Direction::kLoad, "disk", 6, 1)).status.ok());
  EXPECT_EQ(Read(model, 6), bytes);
}

TEST(DiskMedium, APathThatCannotBeMadeIsRefused) {
  step::FakeModel model({});
  DiskMedium::Options options = DiskOptions("x");
  options.path = "/nowhere/at/all";
  EXPECT_EQ(DiskMedium::Create(options, &model, nullptr).status().code(),
            StatusCode::kInvalidArgument);
}

TEST(ThreadedWorker, EveryTransferEndsOnce) {
  step::FakeModel model({});
  ThreadedWorker worker;
  auto arena = std::make_shared<HostArena>(4, model.page_bytes(kGroup));
  worker.Add("host", std::make_unique<HostMedium>(arena, &model));
  std::set<uint64_t> waiting;
  for (int i = 0; i < 200; ++i) {
    const kv_cache::KvTransfer transfer = Transfer(Direction::kStore, "host", 1 + i % 8, i % 4);
    waiting.insert(transfer.id.value());
    worker.Start(transfer);
  }
  std::vector<kv_cache::KvTransferResult> results;
  while (!waiting.empty()) {
    worker.Wait(1'000'000);
    worker.Poll(&results);
    for (const kv_cache::KvTransferResult& result : results) {
      EXPECT_TRUE(result.status.ok());
      EXPECT_EQ(waiting.erase(result.id.value()), 1u);
    }
    results.clear();
  }
}

TEST(ThreadedWorker, ATransferForAnUnknownMediumFails) {
  ThreadedWorker worker;
  worker.Start(Transfer(Direction::kLoad, "tape", 1, 0));
  std::vector<kv_cache::KvTransferResult> results;
  worker.Wait(0);
  worker.Poll(&results);
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(results[0].status, NotFound("no medium is called \"tape\""));
}

TEST(ThreadedWorker, EndsWithTransfersUnderWay) {
  step::FakeModel model({});
  ThreadedWorker worker;
  worker.Add("host", std::make_unique<HostMedium>(
                         std::make_shared<HostArena>(4, model.page_bytes(kGroup)), &model));
  for (int i = 0; i < 100; ++i) worker.Start(Transfer(Direction::kStore, "host", 1, 0));
}

TEST(HostAndDisk, TheSlotSizeOfTheDiskCoversThePage) {
  step::FakeModel model({});
  EXPECT_EQ(DiskOptions("").slot_bytes, model.page_bytes(kGroup));
}

}  // namespace
}  // namespace pagemill::kv_transfer
