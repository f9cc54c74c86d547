#include "cc/ops/group_conformance.h"

#include <thread>

#include "cc/comm/group.h"
#include "cc/comm/shared_memory_world.h"
#include "cc/device/thread_pool.h"

namespace pagemill::ops::conformance {
namespace {

void RunRank(const Kernel& kernel, const comm::Groups& groups, GroupPart& part) {
  const TensorView inputs[] = {part.x.view()}, outputs[] = {part.y.view()};
  const comm::Group* group = groups.at(comm::Axis::kData);
  Attributes attributes;
  attributes.Set("axis", static_cast<double>(comm::Axis::kData));
  attributes.Set("ranks", group == nullptr ? 1 : group->num_ranks());
  attributes.Set("rank", group == nullptr ? 0 : group->rank());
  device::ThreadPool pool({.num_threads = 1});
  KernelContext context = {.pool = &pool, .workspace = {}, .groups = &groups};
  kernel.run({.inputs = inputs, .outputs = outputs, .attributes = &attributes}, context);
}

}  // namespace

TestTensorOptions GroupTensorOptions(bool odd) {
  if (!odd) return {};
  return {.misalign_bytes = 4, .row_padding_bytes = 4};
}

void CheckGroup(const Kernel& kernel, std::vector<GroupPart>& parts,
                const std::vector<float>& expected) {
  const int32_t ranks = static_cast<int32_t>(parts.size());
  const auto segment =
      *comm::SharedSegment::Create({.topology = {.data = ranks}, .slot_bytes = 256});
  std::vector<std::thread> threads;
  for (int32_t r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      const comm::Groups groups = (*comm::SharedMemoryWorld::Join(segment, r))->groups();
      RunRank(kernel, groups, parts[static_cast<size_t>(r)]);
      EXPECT_TRUE(groups.status().ok()) << groups.status().ToString();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const GroupPart& part : parts) {
    EXPECT_TRUE(BitEqual(part.y.ToFloat(), expected)) << kernel.name;
    EXPECT_TRUE(part.x.GuardsIntact() && part.y.GuardsIntact()) << kernel.name;
  }
}

}  // namespace pagemill::ops::conformance
