#include "cc/ops/group_conformance.h"

#include <thread>

#include "cc/comm/communicator.h"
#include "cc/device/thread_pool.h"

namespace pagemill::ops::conformance {
namespace {

void RunRank(const KernelRow& row, comm::Communicator* group, GroupPart& part) {
  const TensorView inputs[] = {part.x.view()}, outputs[] = {part.y.view()};
  Attributes attributes;
  attributes.Set("ranks", group->num_ranks());
  attributes.Set("rank", group->rank());
  device::ThreadPool pool({.num_threads = 1});
  KernelContext context = {.pool = &pool, .workspace = {}, .group = group};
  row.run({.inputs = inputs, .outputs = outputs, .attributes = &attributes}, context);
}

}  // namespace

TestTensorOptions GroupTensorOptions(bool odd) {
  if (!odd) return {};
  return {.misalign_bytes = 4, .row_padding_bytes = 4};
}

void CheckGroup(const KernelRow& row, std::vector<GroupPart>& parts,
                const std::vector<float>& expected) {
  const int32_t ranks = static_cast<int32_t>(parts.size());
  const auto segment = *comm::SharedSegment::Create({.num_ranks = ranks, .slot_bytes = 256});
  std::vector<std::thread> threads;
  for (int32_t r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      const auto group = *comm::Communicator::Join(segment, r);
      RunRank(row, group.get(), parts[static_cast<size_t>(r)]);
      EXPECT_TRUE(group->status().ok()) << group->status().ToString();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const GroupPart& part : parts) {
    EXPECT_TRUE(BitEqual(part.y.ToFloat(), expected)) << row.name;
    EXPECT_TRUE(part.x.GuardsIntact() && part.y.GuardsIntact()) << row.name;
  }
}

}  // namespace pagemill::ops::conformance
