#include "cc/ops/scale/scale.h"

#include "cuda/gpu_elements.h"
#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/kernels.h"

namespace pagemill::gpu {
namespace {

// The factor of a row grows with its position.
struct Growth {
  const int32_t* data;  // positions, or null
  double by, growth;
  int64_t context, offset;

  PAGEMILL_DEVICE float FactorOf(int64_t row) const {
    if (data == nullptr) return static_cast<float>(by);
    const int64_t contexts = (data[row] + offset) / context;
    return static_cast<float>(by * (1 + growth * log(1 + static_cast<double>(contexts))));
  }
};

// `factors` are those of columns, or of groups of `width` columns, whose rows differ; data may be
// null.
template <typename T>
PAGEMILL_KERNEL ScaleRow(Rows<const T> x, Rows<const float> factors, int64_t width, Rows<T> y,
                         int64_t size, Growth growth) {
  const float factor = growth.FactorOf(BlockIndex().x);
  ForElements(size, [&](int64_t row, int64_t i) {
    const float scaled = ToFloat(x[row][i]) * factor;
    y[row][i] =
        FromFloat<T>(factors.data == nullptr ? scaled : scaled * factors[row][i / width]);
  });
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const ops::ScaleArgs args = ops::ToScaleArgs(call);
  const int64_t size = args.x.RowElements();
  const bool in_groups = args.group_factors.rank > 0;
  const Rows<const float> factors = in_groups ? RowsOf<const float>(args.group_factors)
                                              : Rows<const float>{args.factors, 0};
  const int64_t width = in_groups ? size / args.group_factors.shape[1] : 1;
  WithActType(args.x.dtype, [&]<typename T>(T) {
    Launch(*context.stream, ShapeOfElements(args.x.shape[0], size), ScaleRow<T>,
           RowsOf<const T>(args.x), factors, width, RowsOf<T>(args.y), size,
           Growth{args.positions, args.by, args.growth, args.context, args.offset});
  });
}

constexpr ops::Kernel kKernels[] = {{"scale", "gpu", 10, OnEveryGpu, Run}};

}  // namespace

std::span<const ops::Kernel> ScaleKernels() { return kKernels; }

}  // namespace pagemill::gpu
