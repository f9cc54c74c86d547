#include "cuda/ops/grouped_linear/expert_groups.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "cc/device/device.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

struct Sorted {
  std::vector<ExpertGroup> groups;
  std::vector<int32_t> order;
};

// `ids`: [tokens, stride], of which a token has `choices`.
Sorted SortOnGpu(std::vector<int32_t> ids, RoutedIds shape, int32_t group_rows) {
  device::Device& gpu = TheGpu();
  const std::unique_ptr<device::Stream> stream = *gpu.NewStream();
  const std::unique_ptr<device::Event> event = gpu.NewEvent();
  const device::DeviceMemory of_ids =
      *gpu.Allocate(static_cast<int64_t>(ids.size() * sizeof(int32_t)), "ids");
  const int64_t bytes = GroupArrays::Bytes(shape, group_rows);
  const device::DeviceMemory memory = *gpu.Allocate(bytes, "groups");
  stream->CopyToDevice(of_ids.data(), std::as_bytes(std::span(ids)));
  shape.data = reinterpret_cast<const int32_t*>(of_ids.data());
  const GroupArrays arrays = GroupArrays::At(memory.data(), shape, group_rows);
  GroupRows(shape, group_rows, arrays, *stream);
  std::vector<std::byte> found(static_cast<size_t>(bytes));
  stream->CopyToHost(found, memory.data());
  stream->Record(*event);
  const Status status = event->Synchronize();
  EXPECT_TRUE(status.ok()) << status.ToString();
  Sorted sorted = {std::vector<ExpertGroup>(static_cast<size_t>(arrays.max_groups)),
                   std::vector<int32_t>(static_cast<size_t>(shape.rows))};
  const size_t of_groups = sorted.groups.size() * sizeof(ExpertGroup);
  std::memcpy(sorted.groups.data(), found.data(), of_groups);
  std::memcpy(sorted.order.data(), found.data() + of_groups, sorted.order.size() * sizeof(int32_t));
  return sorted;
}

// Ids from -1 to `experts`, which are of none, and half of them of one expert.
void CheckSort(int64_t tokens, int64_t choices, int64_t stride, int32_t experts,
               int32_t group_rows) {
  SCOPED_TRACE(std::to_string(tokens) + " tokens of " + std::to_string(experts) + " experts");
  std::mt19937 random(static_cast<uint32_t>(tokens));
  std::vector<int32_t> ids(static_cast<size_t>(tokens * stride));
  for (int32_t& id : ids) {
    id = random() % 2 == 0 ? experts / 2 : static_cast<int32_t>(random() % (experts + 2)) - 1;
  }
  const RoutedIds shape = {ids.data(), stride, choices, tokens * choices, experts};
  const Sorted found = SortOnGpu(ids, shape, group_rows);
  std::vector<int32_t> order(static_cast<size_t>(shape.rows));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](int32_t row) { return shape.ExpertOf(row); });
  EXPECT_EQ(found.order, order);
  size_t group = 0;
  for (int32_t begin = 0; begin < shape.rows; ++group) {
    const auto bucket_of = [&](int32_t i) { return shape.ExpertOf(order[static_cast<size_t>(i)]); };
    int32_t count = 1;
    while (count < group_rows && begin + count < shape.rows &&
           bucket_of(begin + count) == bucket_of(begin)) {
      ++count;
    }
    ASSERT_LT(group, found.groups.size());
    EXPECT_EQ(found.groups[group].expert, bucket_of(begin));
    EXPECT_EQ(found.groups[group].begin, begin);
    EXPECT_EQ(found.groups[group].count, count);
    begin += count;
  }
  for (; group < found.groups.size(); ++group) EXPECT_EQ(found.groups[group].count, 0);
}

TEST_P(GpuConformance, SortsByOneBlock) {
  CheckSort(/*tokens=*/1, /*choices=*/1, /*stride=*/1, /*experts=*/1, /*group_rows=*/4);
  CheckSort(37, 8, 8, 128, 16);
  CheckSort(341, 3, 5, 255, 64);
  CheckSort(1024, 8, 8, 128, 64);  // all rows that a block may have
  CheckSort(100, 4, 4, 4096, 4);
}

TEST_P(GpuConformance, SortsByManyBlocks) {
  CheckSort(1025, 8, 8, 128, 64);
  CheckSort(2100, 10, 12, 7, 4);  // more chunks than are added up at once
  CheckSort(600, 2, 2, 4096, 8);
}

TEST(ChunkShape, LeavesRoomInSharedMemory) {
  for (const int32_t experts : {1, 128, 512, 768, 1024, 2048, 4096}) {
    for (const int64_t rows : {65, 1000, 8192, 100'000}) {
      const RoutedIds ids = {nullptr, 1, 1, rows, experts};
      const ChunkShape shape = ChunkShape::Of(ids);
      EXPECT_LE(shape.SharedBytes(ids.Buckets()), ChunkShape::kSharedBytes);
      EXPECT_GE(int64_t{shape.threads} * shape.steps * shape.chunks, rows);
      EXPECT_LE(shape.steps, ChunkShape::kMostSteps);
    }
  }
}

}  // namespace
}  // namespace pagemill::gpu
