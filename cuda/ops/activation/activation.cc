#include "cc/ops/activation/activation.h"

#include <limits>

#include "cuda/gpu_elements.h"
#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/activation/activate.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/kernels.h"

namespace pagemill::gpu {
namespace {

template <typename T>
PAGEMILL_KERNEL ActivateRow(Rows<const T> x, Rows<T> y, int64_t size, ops::ActivationKind kind,
                            float lower, float limit) {
  WithActivationKind(kind, [&]<ops::ActivationKind kKind>() {
    ForElements(size, [&](int64_t row, int64_t i) {
      y[row][i] = FromFloat<T>(Activate<kKind>(Clamp(ToFloat(x[row][i]), lower, limit)));
    });
  });
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const ops::ActivationArgs args = ops::ToActivationArgs(call);
  const int64_t size = args.x.RowElements();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const bool limited = args.limit > 0;
  WithActType(args.x.dtype, [&]<typename T>(T) {
    Launch(*context.stream, ShapeOfElements(args.x.shape[0], size), ActivateRow<T>,
           RowsOf<const T>(args.x), RowsOf<T>(args.y), size, args.kind,
           limited ? args.lower : -kInfinity, limited ? args.limit : kInfinity);
  });
}

constexpr ops::Kernel kKernels[] = {{"activation", "gpu", 10, OnEveryGpu, Run}};

}  // namespace

std::span<const ops::Kernel> ActivationKernels() { return kKernels; }

}  // namespace pagemill::gpu
