#include "cc/ops/group_conformance.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <thread>

#include "cc/comm/group.h"
#include "cc/comm/shared_memory_world.h"
#include "cc/device/thread_pool.h"

namespace pagemill::ops::conformance {
namespace {

constexpr size_t kAlignment = 64;

std::vector<TensorView> ViewsOf(const TestTensor& first, const std::vector<TestTensor>& more) {
  std::vector<TensorView> views = {first.view()};
  for (const TestTensor& tensor : more) views.push_back(tensor.view());
  return views;
}

void RunRank(const Kernel& kernel, const comm::Groups& groups, GroupPart& part,
             Attributes attributes) {
  const std::vector<TensorView> inputs = ViewsOf(part.x, part.more_inputs);
  const std::vector<TensorView> outputs = ViewsOf(part.y, part.more_outputs);
  const comm::Group* group = groups.at(comm::Axis::kData);
  attributes.Set("axis", static_cast<double>(comm::Axis::kData));
  attributes.Set("ranks", group == nullptr ? 1 : group->num_ranks());
  attributes.Set("rank", group == nullptr ? 0 : group->rank());
  const OpCall call = {.inputs = inputs, .outputs = outputs, .attributes = &attributes};
  device::ThreadPool pool({.num_threads = 1});
  const int64_t bytes = kernel.workspace_bytes == nullptr ? 0 : kernel.workspace_bytes(call, 1);
  std::vector<std::byte> memory(static_cast<size_t>(bytes) + kAlignment);
  void* workspace = memory.data();
  size_t space = memory.size();
  std::align(kAlignment, static_cast<size_t>(bytes), workspace, space);
  KernelContext context = {
      .pool = &pool,
      .workspace = {static_cast<std::byte*>(workspace), static_cast<size_t>(bytes)},
      .groups = &groups};
  kernel.run(call, context);
}

bool GuardsIntact(const GroupPart& part) {
  const auto intact = [](const TestTensor& tensor) { return tensor.GuardsIntact(); };
  return intact(part.x) && intact(part.y) && std::ranges::all_of(part.more_inputs, intact) &&
         std::ranges::all_of(part.more_outputs, intact);
}

}  // namespace

TestTensorOptions GroupTensorOptions(bool odd) {
  if (!odd) return {};
  return {.misalign_bytes = 4, .row_padding_bytes = 4};
}

void CheckGroup(const Kernel& kernel, std::vector<GroupPart>& parts,
                const std::vector<float>& expected, const Attributes& attributes) {
  const int32_t ranks = static_cast<int32_t>(parts.size());
  const auto segment =
      *comm::SharedSegment::Create({.topology = {.data = ranks}, .slot_bytes = 256});
  std::vector<std::thread> threads;
  for (int32_t r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      const comm::Groups groups = (*comm::SharedMemoryWorld::Join(segment, r))->groups();
      RunRank(kernel, groups, parts[static_cast<size_t>(r)], attributes);
      EXPECT_TRUE(groups.status().ok()) << groups.status().ToString();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const GroupPart& part : parts) {
    EXPECT_TRUE(BitEqual(part.y.ToFloat(), expected)) << kernel.name;
    EXPECT_TRUE(GuardsIntact(part)) << kernel.name;
  }
}

}  // namespace pagemill::ops::conformance
