#include "cc/ops/split/split.h"

#include <cstdint>
#include <numeric>

#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/kernels.h"
#include "cuda/ops/vectors/vectors_of_row.h"

namespace pagemill::gpu {
namespace {

// Elements [0, at) of every `width` go to a, the others to b. kSize divides both.
template <typename T, int kSize>
PAGEMILL_KERNEL SplitRow(Rows<const T> x, Rows<T> a, Rows<T> b, int64_t size, int32_t width,
                         int32_t at) {
  LetNextBegin();
  AwaitInputs();
  WithOwnVector<kSize>(size, [&](int64_t row, int32_t i) {
    const int32_t piece = i / width, column = i % width;
    T* const y = column < at ? a[row] + piece * at + column
                             : b[row] + piece * (width - at) + (column - at);
    *reinterpret_cast<Vector<T, kSize>*>(y) =
        *reinterpret_cast<const Vector<T, kSize>*>(x[row] + i);
  });
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const TensorView &x = call.inputs[0], &a = call.outputs[0], &b = call.outputs[1];
  const int64_t size = x.RowElements(), width = x.shape[x.rank - 1];
  const int64_t at = call.attributes->GetInt("at", 0);
  WithActType(x.dtype, [&]<typename T>(T) {
    const auto launch = [&]<int kSize>() {
      LaunchShape shape = ShapeOfVectors<kSize>(x.shape[0], size);
      shape.early = true;
      Launch(*context.stream, shape, SplitRow<T, kSize>, RowsOf<const T>(x), RowsOf<T>(a),
             RowsOf<T>(b), size, static_cast<int32_t>(width), static_cast<int32_t>(at));
    };
    WithVectorSize<T>(std::gcd(width, at), launch, x, a, b);
  });
}

constexpr ops::Kernel kKernels[] = {{"split", "gpu", 10, OnEveryGpu, Run}};

}  // namespace

std::span<const ops::Kernel> SplitKernels() { return kKernels; }

}  // namespace pagemill::gpu
