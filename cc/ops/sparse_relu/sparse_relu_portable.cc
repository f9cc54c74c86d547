// The header that selects the instruction set must be included first.
// clang-format off
#include "cc/ops/vec/vec_portable.h"
// clang-format on
#include "cc/ops/row_split.h"
#include "cc/ops/sparse_relu/sparse_relu.h"
#include "cc/ops/vec/vec_sum.h"

namespace pagemill::ops {
namespace {

void CutRow(const float* x, int64_t size, float deviations, float* y) {
  const float count = static_cast<float>(size);
  const float mean = SumTerms(x, size, [](Vec::F v) { return v; }) / count;
  const float squares = SumTerms(x, size, [&](Vec::F v) {
    const Vec::F difference = Vec::Sub(v, Vec::Set(mean));
    return Vec::Mul(difference, difference);
  });
  const Vec::F cutoff = Vec::Set(mean + deviations * __builtin_sqrtf(squares / count));
  // Max returns its second operand if it is NaN.
  const auto cut = [&](Vec::F v) { return Vec::Max(Vec::Zero(), Vec::Sub(v, cutoff)); };
  int64_t i = 0;
  for (; i + Vec::kLanes <= size; i += Vec::kLanes) Vec::Store(y + i, cut(Vec::Load(x + i)));
  if (i < size) {
    const int n = static_cast<int>(size - i);
    Vec::StoreN(y + i, cut(Vec::LoadN(x + i, n)), n);
  }
}

}  // namespace

void SparseReluPortable(const OpCall& call, KernelContext& context) {
  const SparseReluArgs args = ToSparseReluArgs(call);
  const int64_t size = args.x.RowElements();
  context.pool->ParallelFor(args.x.shape[0], RowsPerChunk(size),
                            [&](int64_t begin, int64_t end, int) {
                              for (int64_t n = begin; n < end; ++n) {
                                CutRow(args.x.Row<const float>(n), size,
                                       static_cast<float>(args.deviations), args.y.Row<float>(n));
                              }
                            });
}

}  // namespace pagemill::ops
