// What every kernel of `all_gather` has to pass: a copy in a group of one; in a group of threads,
// the columns of all ranks side by side.
#include <vector>

#include "cc/ops/all_gather/all_gather.h"
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/group_conformance.h"
#include "cc/ops/rowwise_conformance.h"

namespace pagemill::ops {
namespace {

using conformance::GroupPart;
using conformance::TestTensor;

// Every rank contributes its columns of a tensor, and every rank must receive the whole tensor.
void CheckRanks(const Kernel& kernel, DType dtype, int32_t ranks, int64_t rows, bool odd) {
  constexpr int64_t kWidth = 83;  // not divisible by any number of ranks
  const conformance::TestTensorOptions options = conformance::GroupTensorOptions(odd);
  conformance::Random random(static_cast<uint64_t>(rows * 10 + ranks));
  TestTensor whole(dtype, {rows, kWidth});
  whole.FillUniform(random, -2, 2);
  const std::vector<float> all = whole.ToFloat();
  std::vector<GroupPart> parts;
  for (int32_t r = 0; r < ranks; ++r) {
    const int64_t begin = GatherBegin(kWidth, r, ranks), end = GatherBegin(kWidth, r + 1, ranks);
    parts.push_back({TestTensor(dtype, {rows, end - begin}, options),
                     TestTensor(dtype, {rows, kWidth}, options)});
    std::vector<float> values;
    for (int64_t n = 0; n < rows; ++n) {
      const auto from = all.begin() + n * kWidth;
      values.insert(values.end(), from + begin, from + end);
    }
    parts.back().x.Set(values);
  }
  conformance::CheckGroup(kernel, parts, all);
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
