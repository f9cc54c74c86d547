// Streams of ranks that are threads exchange data: through the host, or by a fake of oneCCL that
// PAGEMILL_TEST_ONECCL names.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/status.h"
#include "sycl/device/oneccl.h"
#include "sycl/device/sycl_device.h"
#include "sycl/device/sycl_stream.h"
#include "sycl/device/testing/cpu_device.h"
#include "sycl/device/testing/thread_ranks.h"

namespace pagemill::sycl {
namespace {

constexpr int64_t kBufferBytes = 4096, kMostBytes = 4096 / 4 / 64 * 64;  // with three ranks

// The fake, whose name later calls find; null without one.
void* OpenOneccl() {
  const char* const path = getenv("PAGEMILL_TEST_ONECCL");
  if (path == nullptr) return nullptr;
  void* const fake = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  PAGEMILL_CHECK(fake != nullptr && OnecclLibrary::Open().ok());
  return fake;
}

// Calls of the fake so far.
int NumGathersOf(void* fake) {
  return fake == nullptr ? 0 : reinterpret_cast<int (*)()>(dlsym(fake, "fakeOnecclNumGathers"))();
}

SyclDevice& Device() {
  // Never closed: the runtime may be gone when static objects are destroyed.
  static SyclDevice* const device = testing::OpenCpuDevice().release();
  return *device;
}

class Rank {
 public:
  explicit Rank(const device::Ranks& ranks) {
    device::Ranks mine = ranks;
    mine.buffer_bytes = kBufferBytes;
    joined_ = stream_->Join(mine);
  }

  const Status& joined() const { return joined_; }
  SyclStream& stream() { return static_cast<SyclStream&>(*stream_); }
  std::byte* own() { return own_.data(); }

  void Set(std::vector<std::byte> own) {
    set_ = std::move(own);
    stream_->CopyToDevice(own_.data(), set_);
  }
  StatusOr<std::vector<std::byte>> Received(int64_t bytes) {
    std::vector<std::byte> all(static_cast<size_t>(3 * bytes));
    stream_->CopyToHost(all, stream().rank_memory()->received);
    stream_->Record(*done_);
    PAGEMILL_RETURN_IF_ERROR(done_->Synchronize());
    return all;
  }

 private:
  const device::DeviceMemory own_ = *Device().Allocate(kMostBytes, "a test");
  const std::unique_ptr<device::Event> done_ = Device().NewEvent();
  const std::unique_ptr<device::Stream> stream_ = *Device().NewStream();
  std::vector<std::byte> set_;  // until it is copied
  Status joined_;
};

// What a rank has in a call of a number.
std::vector<std::byte> DataOf(int64_t call, int32_t rank, int64_t bytes) {
  std::vector<std::byte> data;
  for (int64_t i = 0; i < bytes; ++i) {
    data.push_back(static_cast<std::byte>(call * 31 + rank * 7 + i));
  }
  return data;
}

std::vector<std::byte> DataOfAll(int64_t call, int64_t bytes) {
  std::vector<std::byte> all;
  for (int32_t r = 0; r < 3; ++r) {
    const std::vector<std::byte> data = DataOf(call, r, bytes);
    all.insert(all.end(), data.begin(), data.end());
  }
  return all;
}

TEST(RankExchange, CallsOfAnySizeFollowEachOther) {
  void* const fake = OpenOneccl();
  const int before = NumGathersOf(fake);
  testing::RunRanks(3, [](const device::Ranks& ranks) {
    Rank rank(ranks);
    ASSERT_TRUE(rank.joined().ok()) << rank.joined().ToString();
    ASSERT_EQ(rank.stream().rank_memory()->most_bytes, kMostBytes);
    for (const int64_t bytes : {int64_t{1}, int64_t{3}, int64_t{64}, kMostBytes, int64_t{5}}) {
      rank.Set(DataOf(bytes, ranks.rank, bytes));
      rank.stream().Gather(rank.own(), bytes);
      EXPECT_EQ(*rank.Received(bytes), DataOfAll(bytes, bytes));
    }
  });
  EXPECT_EQ(NumGathersOf(fake) - before, fake == nullptr ? 0 : 3 * 5);
}

// Each sends what the one before has brought of the next rank: what is replayed is in order, too.
TEST(RankExchange, GraphsOfThemAreReplayed) {
  void* const fake = OpenOneccl();
  const int before = NumGathersOf(fake);
  constexpr int64_t kBytes = 40;
  testing::RunRanks(3, [](const device::Ranks& ranks) {
    Rank rank(ranks);
    ASSERT_TRUE(rank.joined().ok()) << rank.joined().ToString();
    const std::byte* const of_next =
        rank.stream().rank_memory()->received + (ranks.rank + 1) % 3 * kBytes;
    const std::vector<std::byte> zeros(3 * kBytes);
    rank.stream().BeginCapture();
    rank.stream().Gather(rank.own(), kBytes);
    rank.stream().Gather(of_next, kBytes);
    const auto graph = rank.stream().EndCapture();
    ASSERT_TRUE(graph.ok()) << graph.status().ToString();
    for (int64_t call = 0; call < 4; ++call) {
      rank.Set(DataOf(call, ranks.rank, kBytes));
      rank.stream().Replay(**graph);
      std::vector<std::byte> expected;
      for (int32_t r = 0; r < 3; ++r) {
        const std::vector<std::byte> data = DataOf(call, (r + 1) % 3, kBytes);
        expected.insert(expected.end(), data.begin(), data.end());
      }
      EXPECT_EQ(*rank.Received(kBytes), expected) << "call " << call;
    }
  });
  EXPECT_EQ(NumGathersOf(fake) - before, fake == nullptr ? 0 : 3 * 4 * 2);
}

// Not for oneCCL, whose transfers do not notice that a rank has left.
TEST(RankExchange, ARankThatLeavesIsAnErrorOfTheHost) {
  testing::RunRanks(2, [](const device::Ranks& ranks) {
    Rank rank(ranks);
    ASSERT_TRUE(rank.joined().ok()) << rank.joined().ToString();
    if (ranks.rank == 1) return;
    for (int i = 0; i < 3; ++i) rank.stream().Gather(rank.own(), 8);
    for (int i = 0; i < 2; ++i) {
      const Status status = rank.Received(8).status();
      EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status.ToString();
    }
  });
}

TEST(RankExchange, RefusesRanksThatHaveNoRoom) {
  const std::unique_ptr<device::Stream> stream = *Device().NewStream();
  EXPECT_EQ(static_cast<SyclStream&>(*stream).rank_memory(), nullptr);
  device::Ranks ranks;
  ranks.num_ranks = 9;
  EXPECT_NE(stream->Join(ranks).message().find("--tensor-parallel-size 8"), std::string::npos);
  ranks.num_ranks = 8;
  ranks.buffer_bytes = 9 * 64 - 1;
  EXPECT_EQ(stream->Join(ranks).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace pagemill::sycl
