#include "cc/ops/unfold/unfold.h"

#include "cuda/gpu_elements.h"
#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/kernels.h"

namespace pagemill::gpu {
namespace {

template <typename T>
PAGEMILL_KERNEL UnfoldRow(Rows<const T> x, Rows<T> y, int64_t row_size,
                          ops::unfold::Windows windows) {
  const uint32_t size = static_cast<uint32_t>(windows.size);
  const uint32_t window_elements = static_cast<uint32_t>(windows.channels) * size;
  ForElements(row_size, [&](int64_t row, int64_t i) {
    const uint32_t window = static_cast<uint32_t>(i) / window_elements;
    const uint32_t element = static_cast<uint32_t>(i) % window_elements;
    const int64_t position = window * windows.stride + element % size - windows.padding;
    const bool inside = position >= 0 && position < windows.positions;
    y[row][i] = inside ? x[row][position * windows.channels + element / size] : FromFloat<T>(0.0f);
  });
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const TensorView& y = call.outputs[0];
  const int64_t size = y.RowElements();
  WithActType(y.dtype, [&]<typename T>(T) {
    Launch(*context.stream, ShapeOfElements(y.shape[0], size), UnfoldRow<T>,
           RowsOf<const T>(call.inputs[0]), RowsOf<T>(y), size, ops::unfold::WindowsOf(call));
  });
}

constexpr ops::Kernel kKernels[] = {{"unfold", "gpu", 10, OnEveryGpu, Run}};

}  // namespace

std::span<const ops::Kernel> UnfoldKernels() { return kKernels; }

}  // namespace pagemill::gpu
