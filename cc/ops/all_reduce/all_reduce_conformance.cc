// What every kernel of `all_reduce` has to pass: a copy in a group of one; in a group of threads,
// the sum in rank order, bit for bit.
#include <vector>

#include "cc/ops/conformance_bodies.h"
#include "cc/ops/group_conformance.h"
#include "cc/ops/rowwise_conformance.h"

namespace pagemill::ops {
namespace {

using conformance::GroupPart;
using conformance::TestTensor;

std::vector<GroupPart> MakeParts(DType dtype, int32_t ranks, int64_t rows, int64_t size, bool odd) {
  const conformance::TestTensorOptions options = conformance::GroupTensorOptions(odd);
  conformance::Random random(static_cast<uint64_t>(rows * 100 + size));
  std::vector<GroupPart> parts;
  for (int32_t r = 0; r < ranks; ++r) {
    parts.push_back(
        {TestTensor(dtype, {rows, size}, options), TestTensor(dtype, {rows, size}, options)});
    parts.back().x.FillUniform(random, -2, 2);
  }
  return parts;
}

// In rank order, in f32; rounded once.
std::vector<float> SumOf(DType dtype, const std::vector<GroupPart>& parts, int64_t size) {
  std::vector<float> sum = parts[0].x.ToFloat();
  for (size_t r = 1; r < parts.size(); ++r) {
    const std::vector<float> x = parts[r].x.ToFloat();
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += x[i];
  }
  TestTensor rounded(dtype, {static_cast<int64_t>(sum.size()) / size, size});
  rounded.Set(sum);
  return rounded.ToFloat();
}

void CheckRanks(const Kernel& kernel, DType dtype, int32_t ranks, int64_t rows, bool odd) {
  constexpr int64_t kSize = 37;
  std::vector<GroupPart> parts = MakeParts(dtype, ranks, rows, kSize, odd);
  conformance::CheckGroup(kernel, parts, SumOf(dtype, parts, kSize));
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
  for (const Kernel& kernel : op.kernels) {
    for (int32_t ranks : {1, 2, 3}) {
      for (int64_t rows : {0, 1, 7}) {
        for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
          for (bool odd : {false, true}) CheckRanks(kernel, dtype, ranks, rows, odd);
        }
      }
    }
  }
}

}  // namespace pagemill::ops
