#include "cc/ops/split/split.h"

#include "cuda/gpu_elements.h"
#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/kernels.h"

namespace pagemill::gpu {
namespace {

// Elements [0, at) of every `width` go to a, the others to b.
template <typename T>
PAGEMILL_KERNEL SplitRow(Rows<const T> x, Rows<T> a, Rows<T> b, int64_t size, uint32_t width,
                         uint32_t at) {
  ForElements(size, [&](int64_t row, int64_t i) {
    const uint32_t piece = static_cast<uint32_t>(i) / width;
    const uint32_t column = static_cast<uint32_t>(i) % width;
    T* const y = column < at ? a[row] + piece * at + column
                             : b[row] + piece * (width - at) + (column - at);
    *y = x[row][i];
  });
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const TensorView& x = call.inputs[0];
  const int64_t size = x.RowElements();
  WithActType(x.dtype, [&]<typename T>(T) {
    Launch(*context.stream, ShapeOfElements(x.shape[0], size), SplitRow<T>, RowsOf<const T>(x),
           RowsOf<T>(call.outputs[0]), RowsOf<T>(call.outputs[1]), size, x.shape[x.rank - 1],
           call.attributes->GetInt("at", 0));
  });
}

constexpr ops::Kernel kKernels[] = {{"split", "gpu", 10, OnEveryGpu, Run}};

}  // namespace

std::span<const ops::Kernel> SplitKernels() { return kKernels; }

}  // namespace pagemill::gpu
