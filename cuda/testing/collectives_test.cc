// Collectives of ranks that are threads, on emulated GPUs.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <latch>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "cc/comm/shared_memory_world.h"
#include "cc/ops/collective.h"
#include "cuda/device/gpu_device.h"
#include "cuda/emulation/runtime.h"
#include "cuda/ops/kernels.h"

namespace pagemill::gpu {
namespace {

using emulation::EmulatedGpu;

constexpr int64_t kMostElements = 900;
constexpr int64_t kBufferBytes = 2048;  // many calls need several launches

std::shared_ptr<comm::SharedSegment> NewSegment(int32_t ranks) {
  return *comm::SharedSegment::Create({.topology = {.tensor = ranks}});
}

// What a rank has in a call of a number.
std::vector<float> DataOf(int64_t call, int32_t rank, int64_t size) {
  std::minstd_rand random(static_cast<uint32_t>(1 + call * 10 + rank));
  std::vector<float> data;
  for (int64_t i = 0; i < size; ++i) data.push_back(static_cast<float>(random() % 2000) / 16 - 60);
  return data;
}

const ops::Kernel& KernelNamed(std::string_view name) {
  for (const ops::Kernel& kernel : AllReduceKernels()) {
    if (kernel.name == name) return kernel;
  }
  PAGEMILL_CHECK(false);
}

class Rank {
 public:
  Rank(std::shared_ptr<comm::SharedSegment> segment, int32_t rank, int32_t limit_ms = 60'000)
      : world_(*comm::SharedMemoryWorld::Join(std::move(segment), rank)),
        gpu_(*GpuDevice::Open(rank % EmulatedGpu::kDevices)) {
    comm::Groups groups = world_->groups();
    device::Ranks ranks = ops::RanksOf(*groups.at(comm::Axis::kTensor));
    ranks.buffer_bytes = kBufferBytes;
    ranks.limit_ms = limit_ms;
    PAGEMILL_CHECK(world_->WaitForAll(std::chrono::minutes(1)).ok());
    joined_ = stream_->Join(ranks);
  }

  const Status& joined() const { return joined_; }
  int32_t rank() const { return world_->rank(); }
  int32_t num_ranks() const { return world_->num_ranks(); }
  device::Stream& stream() { return *stream_; }

  void Send(const std::vector<float>& x) {
    sent_ = x;
    stream_->CopyToDevice(x_.data(), std::as_bytes(std::span(sent_)));
  }

  void Sum(std::string_view kernel, int64_t size) {
    Run(KernelNamed(kernel), {1, size}, {1, size});
  }
  void Gather(int64_t rows, int64_t width) {
    const int64_t own = width * (rank() + 1) / num_ranks() - width * rank() / num_ranks();
    Run(AllGatherKernels()[0], {rows, own}, {rows, width});
  }

  StatusOr<std::vector<float>> Result(int64_t size) {
    std::vector<float> y(static_cast<size_t>(size));
    stream_->CopyToHost(std::as_writable_bytes(std::span(y)), y_.data());
    stream_->Record(*done_);
    PAGEMILL_RETURN_IF_ERROR(done_->Synchronize());
    return y;
  }

 private:
  struct Shape {
    int64_t rows, columns;
  };
  void Run(const ops::Kernel& kernel, Shape in, Shape out) {
    ops::Attributes attributes;
    attributes.Set("ranks", num_ranks());
    attributes.Set("rank", rank());
    const TensorView x = TensorView::Dense(x_.data(), DType::kF32, {in.rows, in.columns});
    const TensorView y = TensorView::Dense(y_.data(), DType::kF32, {out.rows, out.columns});
    ops::KernelContext context = {.stream = stream_.get()};
    kernel.run({.inputs = {&x, 1}, .outputs = {&y, 1}, .attributes = &attributes}, context);
  }

  std::shared_ptr<comm::SharedMemoryWorld> world_;
  std::unique_ptr<GpuDevice> gpu_;
  device::DeviceMemory x_ = *gpu_->Allocate(4 * kMostElements, "x");
  device::DeviceMemory y_ = *gpu_->Allocate(4 * kMostElements, "y");
  std::unique_ptr<device::Event> done_ = gpu_->NewEvent();
  std::unique_ptr<device::Stream> stream_ = *gpu_->NewStream();
  std::vector<float> sent_;
  Status joined_;
};

// Runs `body` on as many ranks, a thread each.
template <typename Body>
void OnRanks(int32_t ranks, int32_t limit_ms, const Body& body) {
  const auto segment = NewSegment(ranks);
  std::vector<std::thread> threads;
  for (int32_t r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      Rank rank(segment, r, limit_ms);
      ASSERT_TRUE(rank.joined().ok()) << rank.joined().ToString();
      body(rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

std::vector<float> ExpectedSum(int64_t call, int32_t ranks, int64_t size) {
  std::vector<float> sum = DataOf(call, 0, size);
  for (int32_t r = 1; r < ranks; ++r) {
    const std::vector<float> x = DataOf(call, r, size);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += x[i];
  }
  return sum;
}

// A random collective, the same on all ranks.
void CheckCall(Rank& rank, int64_t call) {
  std::minstd_rand random(static_cast<uint32_t>(call + 1));
  const auto kind = random() % 3;
  const int64_t rows = 1 + static_cast<int64_t>(random() % 9);
  const int64_t columns = 1 + static_cast<int64_t>(random() % 99), size = rows * columns;
  if (kind == 2) {
    const int64_t begin = columns * rank.rank() / rank.num_ranks();
    const int64_t end = columns * (rank.rank() + 1) / rank.num_ranks();
    const std::vector<float> whole = DataOf(call, 0, size);
    std::vector<float> own;
    for (int64_t n = 0; n < rows; ++n) {
      const auto row = whole.begin() + n * columns;
      own.insert(own.end(), row + begin, row + end);
    }
    rank.Send(own);
    rank.Gather(rows, columns);
    EXPECT_EQ(*rank.Result(size), whole) << "call " << call;
    return;
  }
  rank.Send(DataOf(call, rank.rank(), size));
  rank.Sum(kind == 0 ? "one_shot" : "two_shot", size);
  EXPECT_EQ(*rank.Result(size), ExpectedSum(call, rank.num_ranks(), size)) << "call " << call;
}

TEST(Collectives, CallsOfAnySizeFollowEachOther) {
  for (int32_t ranks : {2, 4}) {
    for (int lanes : {32, 64}) {
      EmulatedGpu::Configure({.warp_lanes = lanes, .seed = 7});
      OnRanks(ranks, 60'000, [](Rank& rank) {
        for (int64_t call = 0; call < 16; ++call) CheckCall(rank, call);
      });
    }
  }
}

TEST(Collectives, NcclServesGpusWithoutAccessToEachOther) {
  EmulatedGpu::Configure({.has_peer_access = false});
  for (int32_t ranks : {2, 3}) {
    OnRanks(ranks, 60'000, [](Rank& rank) {
      for (int64_t call = 0; call < 16; ++call) CheckCall(rank, call);
    });
  }
  EmulatedGpu::Configure({});
}

TEST(Collectives, GpusWithoutAccessToEachOtherNeedNccl) {
  EmulatedGpu::Configure({.has_peer_access = false, .has_nccl = false});
  const auto segment = NewSegment(2);
  std::vector<std::thread> threads;
  for (int32_t r = 0; r < 2; ++r) {
    threads.emplace_back([&, r] {
      const Status joined = Rank(segment, r).joined();
      EXPECT_EQ(joined.code(), StatusCode::kFailedPrecondition);
      EXPECT_NE(joined.message().find("there is no NCCL"), std::string::npos) << joined.message();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EmulatedGpu::Configure({});
}

TEST(Collectives, GraphsOfThemAreReplayed) {
  constexpr int64_t kSize = 700;
  OnRanks(3, 60'000, [](Rank& rank) {
    rank.stream().BeginCapture();
    rank.Sum("one_shot", kSize);
    rank.Sum("two_shot", kSize);
    rank.Sum("peer_memory", kSize);
    const std::unique_ptr<device::Graph> graph = *rank.stream().EndCapture();
    for (int64_t call = 0; call < 4; ++call) {
      rank.Send(DataOf(call, rank.rank(), kSize));
      rank.stream().Replay(*graph);
      EXPECT_EQ(*rank.Result(kSize), ExpectedSum(call, rank.num_ranks(), kSize)) << call;
    }
  });
}

// It ends the wait, and later calls do not wait again.
TEST(Collectives, ARankThatDoesNotComeIsAnError) {
  std::latch is_over(1);
  OnRanks(2, 100, [&](Rank& rank) {
    if (rank.rank() == 1) return is_over.wait();  // its memory is written to
    for (int i = 0; i < 20; ++i) rank.Sum("one_shot", 8);
    const Status status = rank.Result(8).status();
    EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status.ToString();
    EXPECT_NE(status.message().find("another rank did not come"), std::string::npos);
    is_over.count_down();
  });
}

TEST(Collectives, RefusesRanksThatHaveNoRoom) {
  const std::unique_ptr<GpuDevice> gpu = *GpuDevice::Open(0);
  const std::unique_ptr<device::Stream> stream = *gpu->NewStream();
  device::Ranks ranks;
  ranks.num_ranks = 9;
  EXPECT_NE(stream->Join(ranks).message().find("--tensor-parallel-size 8"), std::string::npos);
  ranks.num_ranks = 8;
  ranks.buffer_bytes = 255;
  EXPECT_EQ(stream->Join(ranks).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace pagemill::gpu
