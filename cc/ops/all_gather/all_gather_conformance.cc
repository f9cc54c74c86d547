#include "cc/ops/all_gather/all_gather_conformance.h"

#include <thread>
#include <vector>

#include "cc/comm/communicator.h"
#include "cc/ops/all_gather/all_gather.h"
#include "cc/ops/row_conformance.h"

namespace pagemill::ops {
namespace {

using conformance::TestTensor;

// One rank's operands.
struct Part {
  TestTensor x, y;
};

void RunRank(const KernelRow& row, comm::Communicator* group, Part& part) {
  const TensorView inputs[] = {part.x.view()}, outputs[] = {part.y.view()};
  Attributes attributes;
  attributes.Set("ranks", group->num_ranks());
  attributes.Set("rank", group->rank());
  device::ThreadPool pool({.num_threads = 1});
  KernelContext context = {.pool = &pool, .workspace = {}, .group = group};
  row.run({.inputs = inputs, .outputs = outputs, .attributes = &attributes}, context);
}

// Every rank gives its columns of a tensor that all must then have whole.
void CheckGroup(const KernelRow& row, int32_t ranks, int64_t rows, bool odd) {
  constexpr int64_t kWidth = 83;  // divides by no number of ranks
  const conformance::TestTensorOptions options =
      odd ? conformance::TestTensorOptions{.misalign_bytes = 4, .row_padding_bytes = 4}
          : conformance::TestTensorOptions{};
  conformance::Random random(static_cast<uint64_t>(rows * 10 + ranks));
  TestTensor whole(DType::kF32, {rows, kWidth});
  whole.FillUniform(random, -2, 2);
  std::vector<Part> parts;
  for (int32_t r = 0; r < ranks; ++r) {
    const int64_t begin = GatherBegin(kWidth, r, ranks), end = GatherBegin(kWidth, r + 1, ranks);
    parts.push_back({TestTensor(DType::kF32, {rows, end - begin}, options),
                     TestTensor(DType::kF32, {rows, kWidth}, options)});
    std::vector<float> values;
    for (int64_t n = 0; n < rows; ++n) {
      const float* from = whole.view().Row<const float>(n);
      values.insert(values.end(), from + begin, from + end);
    }
    parts.back().x.Set(values);
  }
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
  for (const Part& part : parts) {
    EXPECT_TRUE(conformance::BitEqual(part.y.ToFloat(), whole.ToFloat())) << row.name;
    EXPECT_TRUE(part.x.GuardsIntact() && part.y.GuardsIntact()) << row.name;
  }
}

}  // namespace

void CheckAllGatherConformance(const OpDefinition& op, const device::Capabilities& caps) {
  for (int64_t size : {1, 5, 64, 577}) {
    conformance::RowCase c{.op = op};
    c.AddRows({9, size});
    c.AddOutput({9, size});
    c.attributes.Set("ranks", 1);
    c.attributes.Set("rank", 0);
    c.tolerance = {};  // exact
    CheckRowCase(c, caps);
  }
  for (const KernelRow& row : op.rows) {
    for (int32_t ranks : {1, 2, 3}) {
      for (int64_t rows : {0, 1, 7}) {
        for (bool odd : {false, true}) CheckGroup(row, ranks, rows, odd);
      }
    }
  }
}

}  // namespace pagemill::ops
