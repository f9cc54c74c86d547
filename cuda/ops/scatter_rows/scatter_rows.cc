#include "cc/ops/scatter_rows/scatter_rows.h"

#include "cuda/gpu_elements.h"
#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/kernels.h"

namespace pagemill::gpu {
namespace {

// z[rows[m]] = y[m], or z[m] = y[m] if `rows` is null.
template <typename T>
PAGEMILL_KERNEL ScatterRow(Rows<const T> y, const int32_t* rows, Rows<T> z, int64_t size) {
  ForElements(size, [&](int64_t row, int64_t i) {
    z[rows == nullptr ? row : rows[row]][i] = y[row][i];
  });
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const TensorView& x = call.inputs[0];
  const TensorView& y = call.inputs[1];
  const int64_t size = x.RowElements();
  WithActType(x.dtype, [&]<typename T>(T) {
    const Rows<T> z = RowsOf<T>(call.outputs[0]);
    if (z.data != x.data) {
      Launch(*context.stream, ShapeOfElements(x.shape[0], size), ScatterRow<T>,
             RowsOf<const T>(x), nullptr, z, size);
    }
    Launch(*context.stream, ShapeOfElements(y.shape[0], size), ScatterRow<T>, RowsOf<const T>(y),
           call.inputs[2].Data<const int32_t>(), z, size);
  });
}

constexpr ops::Kernel kKernels[] = {{"scatter_rows", "gpu", 10, OnEveryGpu, Run}};

}  // namespace

std::span<const ops::Kernel> ScatterRowsKernels() { return kKernels; }

}  // namespace pagemill::gpu
