#include "cc/ops/row_split.h"
#include "cc/ops/scale/scale.h"

namespace pagemill::ops {

namespace {

void ScaleRow(const ScaleArgs& args, int64_t n) {
  const int64_t size = args.x.RowElements();
  const float factor = args.FactorOf(n);
  const float* x = args.x.Row<const float>(n);
  float* y = args.y.Row<float>(n);
  for (int64_t i = 0; i < size; ++i) y[i] = x[i] * factor;
  if (args.factors != nullptr) {
    for (int64_t i = 0; i < size; ++i) y[i] *= args.factors[i];
  }
  if (args.group_factors.rank == 0) return;
  const int64_t groups = args.group_factors.shape[1], width = size / groups;
  for (int64_t g = 0; g < groups; ++g) {
    const float of_group = args.group_factors.Row<const float>(n)[g];
    for (int64_t i = 0; i < width; ++i) y[g * width + i] *= of_group;
  }
}

}  // namespace

void ScalePortable(const OpCall& call, KernelContext& context) {
  const ScaleArgs args = ToScaleArgs(call);
  context.pool->ParallelFor(args.x.shape[0], RowsPerChunk(args.x.RowElements()),
                            [&](int64_t begin, int64_t end, int) {
                              for (int64_t n = begin; n < end; ++n) ScaleRow(args, n);
                            });
}

}  // namespace pagemill::ops
