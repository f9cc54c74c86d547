#include "cc/ops/linear/linear.h"

#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/kernels.h"
#include "cuda/ops/linear/row_products.h"
#include "cuda/ops/linear/tensor_cores.h"
#include "cuda/ops/linear/weight_row.h"

namespace pagemill::gpu {
namespace {

constexpr int kThreads = 128;
constexpr int kOutputs = kThreads / kProductLanes;

struct ProductShape {
  int64_t rows, outputs, columns;  // N, M, K
  bool wide;                       // y is f32
};

// kProductLanes threads for output m of kRowsAtOnce rows of x.
template <typename T, DType kFormat>
PAGEMILL_KERNEL MultiplyRows(ProductShape shape, Rows<const T> x, Rows<const uint8_t> w,
                             const float* bias, Rows<T> y, Rows<float> wide_y) {
  const int thread = static_cast<int>(ThreadIndex().x);
  const int64_t m = static_cast<int64_t>(BlockIndex().x) * kOutputs + thread / kProductLanes;
  const int64_t first_row = static_cast<int64_t>(BlockIndex().y) * kRowsAtOnce;
  const bool exists = m < shape.outputs;  // if not, it sums with the others of its warp
  const int64_t rows_left = shape.rows - first_row;
  const int rows = rows_left < kRowsAtOnce ? static_cast<int>(rows_left) : kRowsAtOnce;
  const T* of_x[kRowsAtOnce];
  PAGEMILL_UNROLL
  for (int row = 0; row < kRowsAtOnce; ++row) of_x[row] = x[first_row + row];
  float sums[kRowsAtOnce];
  MultiplyWithRow<kFormat>(of_x, rows, w[exists ? m : 0], shape.columns, sums);
  if (thread % kProductLanes != 0 || !exists) return;
  PAGEMILL_UNROLL
  for (int row = 0; row < kRowsAtOnce; ++row) {
    if (row >= rows) break;
    const float sum = bias == nullptr ? sums[row] : sums[row] + bias[m];
    if (shape.wide) {
      wide_y[first_row + row][m] = sum;
    } else {
      y[first_row + row][m] = FromFloat<T>(sum);
    }
  }
}

template <typename T>
void Multiply(const TensorView& x, const TensorView& w, const float* bias, const TensorView& y,
              device::Stream& stream) {
  const ProductShape shape = {x.shape[0], w.shape[0], w.shape[1],
                              y.dtype == DType::kF32 && !std::is_same_v<T, float>};
  const LaunchShape launch = {
      .blocks = {DivideUp(shape.outputs, kOutputs), DivideUp(shape.rows, kRowsAtOnce)},
      .threads = {kThreads}};
  ops::WithWeightFormat(w.dtype, [&]<DType kFormat>() {
    Launch(stream, launch, MultiplyRows<T, kFormat>, shape, RowsOf<const T>(x),
           RowsOf<const uint8_t>(w), bias, RowsOf<T>(y), RowsOf<float>(y));
  });
}

void MultiplyPlain(const TensorView& x, const TensorView& w, const float* bias,
                   const TensorView& y, device::Stream& stream) {
  WithActType(x.dtype, [&]<typename T>(T) { Multiply<T>(x, w, bias, y, stream); });
}

// Each matrix of a call by itself.
template <void (*kMultiply)(const TensorView& x, const TensorView& w, const float* bias,
                            const TensorView& y, device::Stream& stream)>
void Run(const ops::OpCall& call, ops::KernelContext& context) {
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    const size_t bias = 2 + 2 * i;
    const bool has_bias = bias < call.inputs.size() && call.inputs[bias].rank > 0;
    kMultiply(call.inputs[0], call.inputs[1 + 2 * i],
              has_bias ? call.inputs[bias].Data<const float>() : nullptr, call.outputs[i],
              *context.stream);
  }
}

bool Supports(const device::Capabilities& caps, const ops::OpCall& call) {
  return OnEveryGpu(caps, call) && IsReadableFormat(call.inputs[1]);
}

// Rows that no vector load can read go to the other kernel.
void MultiplyAligned(const TensorView& x, const TensorView& w, const float* bias,
                     const TensorView& y, device::Stream& stream) {
  const bool aligned = HasAlignedRows(x) && HasAlignedRows(w);
  (aligned ? MultiplyOnTensorCores : MultiplyPlain)(x, w, bias, y, stream);
}

bool SupportsTensorCores(const device::Capabilities& caps, const ops::OpCall& call) {
  const TensorView& x = call.inputs[0];
  const TensorView& w = call.inputs[1];
  return OnEveryGpu(caps, call) && caps.gpu.compute_major >= 8 && caps.gpu.warp_lanes == 32 &&
         x.dtype == DType::kBF16 && w.dtype == DType::kBF16 && w.parts == nullptr &&
         w.shape[1] % kTensorCoreColumns == 0;
}

constexpr ops::Kernel kKernels[] = {
    {.op = "linear",
     .name = "tensor_core",
     .priority = 20,
     .supports = SupportsTensorCores,
     .run = Run<MultiplyAligned>,
     .activations = ops::Precision::kBf16},
    {.op = "linear", .name = "gpu", .priority = 10, .supports = Supports,
     .run = Run<MultiplyPlain>},
};

}  // namespace

std::span<const ops::Kernel> LinearKernels() { return kKernels; }

}  // namespace pagemill::gpu
