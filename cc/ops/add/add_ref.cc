#include "cc/ops/add/add.h"

namespace pagemill::ops {

void AddReference(const OpCall& call, KernelContext&) {
  const AddArgs args = ToAddArgs(call);
  for (int64_t n = 0; n < args.a.shape[0]; ++n) {
    const float* a = args.a.Row<float>(n);
    const float* b = args.b.Row<float>(args.b.rank == 1 ? 0 : n);
    float* y = args.y.Row<float>(n);
    for (int64_t i = 0; i < args.a.RowElements(); ++i) y[i] = a[i] + b[i];
  }
}

}  // namespace pagemill::ops
