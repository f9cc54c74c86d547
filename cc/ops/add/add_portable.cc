// The header that selects the instruction set must be included first.
// clang-format off
#include "cc/ops/vec/vec_portable.h"
// clang-format on
#include "cc/ops/add/add.h"
#include "cc/ops/row_split.h"

namespace pagemill::ops {
namespace {

void AddRow(const float* a, const float* b, float* y, int64_t size) {
  int64_t i = 0;
  for (; i + Vec::kLanes <= size; i += Vec::kLanes) {
    Vec::Store(y + i, Vec::Add(Vec::Load(a + i), Vec::Load(b + i)));
  }
  for (; i < size; ++i) y[i] = a[i] + b[i];
}

}  // namespace

void AddPortable(const OpCall& call, KernelContext& context) {
  const AddArgs args = ToAddArgs(call);
  const int64_t size = args.a.RowElements();
  const bool broadcast = args.b.rank == 1;
  context.pool->ParallelFor(args.a.shape[0], RowsPerChunk(size),
                            [&](int64_t begin, int64_t end, int) {
                              for (int64_t i = begin; i < end; ++i) {
                                AddRow(args.a.Row<float>(i), args.b.Row<float>(broadcast ? 0 : i),
                                       args.y.Row<float>(i), size);
                              }
                            });
}

}  // namespace pagemill::ops
