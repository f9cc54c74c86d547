#include "cc/ops/concat/concat.h"

#include "cuda/gpu_elements.h"
#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/kernels.h"

namespace pagemill::gpu {
namespace {

template <typename T>
PAGEMILL_KERNEL CopyRow(Rows<const T> x, Rows<T> y, int64_t size) {
  ForElements(size, [&](int64_t row, int64_t i) { y[row][i] = x[row][i]; });
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  WithActType(call.outputs[0].dtype, [&]<typename T>(T) {
    Rows<T> y = RowsOf<T>(call.outputs[0]);
    for (const TensorView& x : call.inputs) {
      const int64_t size = x.RowElements();
      Launch(*context.stream, ShapeOfElements(x.shape[0], size), CopyRow<T>, RowsOf<const T>(x), y,
             size);
      y.data += size;
    }
  });
}

constexpr ops::Kernel kKernels[] = {{"concat", "gpu", 10, OnEveryGpu, Run}};

}  // namespace

std::span<const ops::Kernel> ConcatKernels() { return kKernels; }

}  // namespace pagemill::gpu
