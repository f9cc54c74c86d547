#include "cc/ops/linear/linear.h"

#include "cuda/gpu_launch.h"
#include "cuda/gpu_reduce.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/linear/linear.h"
#include "cuda/ops/linear/weight_row.h"

namespace pagemill::gpu {
namespace {

constexpr int kThreads = 128;
constexpr int kLanes = 32;  // for one output, also where warps have 64
constexpr int kOutputs = kThreads / kLanes;
constexpr int kRowsAtOnce = 4;  // of x, for each weight that is read

struct ProductShape {
  int64_t rows, outputs, columns;  // N, M, K
  bool wide;                       // y is f32
};

// kLanes threads for output m of kRowsAtOnce rows of x, each of which sums every kLanes-th group of
// eight columns. So bits depend on the row of x and K alone.
template <typename T, DType kFormat>
PAGEMILL_KERNEL MultiplyRows(ProductShape shape, Rows<const T> x, Rows<const uint8_t> w,
                             const float* bias, Rows<T> y, Rows<float> wide_y) {
  const int thread = static_cast<int>(ThreadIndex().x);
  const int64_t m = static_cast<int64_t>(BlockIndex().x) * kOutputs + thread / kLanes;
  const int64_t first_row = static_cast<int64_t>(BlockIndex().y) * kRowsAtOnce;
  const bool exists = m < shape.outputs;  // if not, it sums with the others of its warp
  const int64_t rows_left = shape.rows - first_row;
  const int rows = rows_left < kRowsAtOnce ? static_cast<int>(rows_left) : kRowsAtOnce;
  const uint8_t* const weights = w[exists ? m : 0];
  float sums[kRowsAtOnce] = {};
  for (int64_t k = thread % kLanes * kWeightsAtOnce; k < shape.columns;
       k += kLanes * kWeightsAtOnce) {
    const int64_t left = shape.columns - k;
    const int count = left < kWeightsAtOnce ? static_cast<int>(left) : kWeightsAtOnce;
    float of_w[kWeightsAtOnce], of_x[kWeightsAtOnce];
    LoadWeights<kFormat>(weights, k, count, of_w);
#pragma unroll
    for (int row = 0; row < kRowsAtOnce; ++row) {
      if (row >= rows) break;
      LoadElements(x[first_row + row] + k, count, of_x);
#pragma unroll
      for (int i = 0; i < kWeightsAtOnce; ++i) sums[row] += of_w[i] * of_x[i];
    }
  }
#pragma unroll
  for (int row = 0; row < kRowsAtOnce; ++row) {
    if (row >= rows) break;
    float sum = WarpReduce(sums[row], Sum{}, kLanes);
    if (thread % kLanes != 0 || !exists) continue;
    if (bias != nullptr) sum += bias[m];
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

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const TensorView& x = call.inputs[0];
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    const size_t bias = 2 + 2 * i;
    const bool has_bias = bias < call.inputs.size() && call.inputs[bias].rank > 0;
    WithActType(x.dtype, [&]<typename T>(T) {
      Multiply<T>(x, call.inputs[1 + 2 * i],
                  has_bias ? call.inputs[bias].Data<const float>() : nullptr, call.outputs[i],
                  *context.stream);
    });
  }
}

bool Supports(const device::Capabilities& caps, const ops::OpCall& call) {
  return OnEveryGpu(caps, call) && IsReadableFormat(call.inputs[1]);
}

constexpr ops::Kernel kKernels[] = {{"linear", "gpu", 10, Supports, Run}};

}  // namespace

std::span<const ops::Kernel> LinearKernels() { return kKernels; }

}  // namespace pagemill::gpu
