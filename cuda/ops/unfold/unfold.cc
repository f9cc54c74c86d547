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

// The windows of an index, of `rows` rows.
template <typename T>
PAGEMILL_KERNEL UnfoldListed(Rows<const T> x, Rows<T> y, int64_t rows, int64_t row_size,
                             ops::unfold::Windows windows) {
  const uint32_t size = static_cast<uint32_t>(windows.size);
  const uint32_t window_elements = static_cast<uint32_t>(windows.channels) * size;
  const uint32_t positions = static_cast<uint32_t>(windows.positions);
  ForElements(row_size, [&](int64_t row, int64_t i) {
    const uint32_t window = static_cast<uint32_t>(i) / window_elements;
    const uint32_t element = static_cast<uint32_t>(i) % window_elements;
    const int64_t in_group = row % windows.group, first = row - in_group;
    const int64_t left = rows - first < windows.group ? rows - first : windows.group;
    const int32_t at =
        windows.index[(in_group * windows.count + window) * windows.size + element % size];
    const bool inside = at >= 0 && at < left * windows.positions;
    const uint32_t from = inside ? static_cast<uint32_t>(at) : 0;
    y[row][i] =
        inside ? x[first + from / positions][from % positions * windows.channels + element / size]
               : FromFloat<T>(0.0f);
  });
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const TensorView& y = call.outputs[0];
  const int64_t size = y.RowElements();
  const ops::unfold::Windows windows = ops::unfold::WindowsOf(call);
  WithActType(y.dtype, [&]<typename T>(T) {
    const auto x = RowsOf<const T>(call.inputs[0]);
    const LaunchShape shape = ShapeOfElements(y.shape[0], size);
    if (windows.index == nullptr) {
      Launch(*context.stream, shape, UnfoldRow<T>, x, RowsOf<T>(y), size, windows);
    } else {
      Launch(*context.stream, shape, UnfoldListed<T>, x, RowsOf<T>(y), y.shape[0], size, windows);
    }
  });
}

constexpr ops::Kernel kKernels[] = {{"unfold", "gpu", 10, OnEveryGpu, Run}};

}  // namespace

std::span<const ops::Kernel> UnfoldKernels() { return kKernels; }

}  // namespace pagemill::gpu
