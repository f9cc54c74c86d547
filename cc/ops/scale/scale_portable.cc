#include "cc/ops/row_split.h"
#include "cc/ops/scale/scale.h"

namespace pagemill::ops {

void ScalePortable(const OpCall& call, KernelContext& context) {
  const ScaleArgs args = ToScaleArgs(call);
  const int64_t size = args.x.RowElements();
  context.pool->ParallelFor(args.x.shape[0], RowsPerChunk(size),
                            [&](int64_t begin, int64_t end, int) {
                              for (int64_t n = begin; n < end; ++n) {
                                const float factor = args.FactorOf(n);
                                const float* x = args.x.Row<const float>(n);
                                float* y = args.y.Row<float>(n);
                                for (int64_t i = 0; i < size; ++i) y[i] = x[i] * factor;
                                if (args.factors == nullptr) continue;
                                for (int64_t i = 0; i < size; ++i) y[i] *= args.factors[i];
                              }
                            });
}

}  // namespace pagemill::ops
