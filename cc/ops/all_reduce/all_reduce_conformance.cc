#include "cc/ops/all_reduce/all_reduce_conformance.h"

#include <thread>
#include <vector>

#include "cc/comm/communicator.h"
#include "cc/ops/row_conformance.h"

namespace pagemill::ops {
namespace {

using conformance::TestTensor;

// One rank's operands.
struct Part {
  TestTensor x, y;
};

std::vector<Part> MakeParts(int32_t ranks, int64_t rows, int64_t size, bool odd) {
  const conformance::TestTensorOptions options =
      odd ? conformance::TestTensorOptions{.misalign_bytes = 4, .row_padding_bytes = 4}
          : conformance::TestTensorOptions{};
  conformance::Random random(static_cast<uint64_t>(rows * 100 + size));
  std::vector<Part> parts;
  for (int32_t r = 0; r < ranks; ++r) {
    parts.push_back({TestTensor(DType::kF32, {rows, size}, options),
                     TestTensor(DType::kF32, {rows, size}, options)});
    parts.back().x.FillUniform(random, -2, 2);
  }
  return parts;
}

std::vector<float> SumOf(const std::vector<Part>& parts) {
  std::vector<float> sum = parts[0].x.ToFloat();
  for (size_t r = 1; r < parts.size(); ++r) {
    const std::vector<float> x = parts[r].x.ToFloat();
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += x[i];
  }
  return sum;
}

void RunRank(const KernelRow& row, comm::Communicator* group, Part& part) {
  const TensorView inputs[] = {part.x.view()}, outputs[] = {part.y.view()};
  Attributes attributes;
  attributes.Set("ranks", group->num_ranks());
  device::ThreadPool pool({.num_threads = 1});
  KernelContext context = {.pool = &pool, .workspace = {}, .group = group};
  row.run({.inputs = inputs, .outputs = outputs, .attributes = &attributes}, context);
}

void CheckGroup(const KernelRow& row, int32_t ranks, int64_t rows, bool odd) {
  std::vector<Part> parts = MakeParts(ranks, rows, 37, odd);
  const std::vector<float> expected = SumOf(parts);
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
    EXPECT_TRUE(conformance::BitEqual(part.y.ToFloat(), expected)) << row.name;
    EXPECT_TRUE(part.x.GuardsIntact() && part.y.GuardsIntact()) << row.name;
  }
}

}  // namespace

void CheckAllReduceConformance(const OpDefinition& op, const device::Capabilities& caps) {
  for (int64_t size : {1, 5, 64, 577}) {
    conformance::RowCase c{.op = op};
    c.AddRows({9, size});
    c.AddOutput({9, size});
    c.attributes.Set("ranks", 1);
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
