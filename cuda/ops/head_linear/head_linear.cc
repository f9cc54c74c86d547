#include "cc/ops/head_linear/head_linear.h"

#include "cc/ops/block_format/block_layout.h"
#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/kernels.h"
#include "cuda/ops/linear/row_products.h"
#include "cuda/ops/linear/weight_row.h"

namespace pagemill::gpu {
namespace {

constexpr int kThreads = 128;
constexpr int kOutputs = kThreads / kProductLanes;  // of a block that sums along rows of W
constexpr int64_t kColumns = int64_t{kThreads} * kWeightsAtOnce;  // of one that sums along columns

struct HeadShape {
  int64_t rows, heads, inputs, outputs;  // N, J, K, M
  int64_t w_row_bytes;
};

// The first row of x of a block, the next ones, and how many there are.
struct BlockRows {
  int64_t first;
  int count;

  PAGEMILL_DEVICE explicit BlockRows(const HeadShape& shape)
      : first(int64_t{BlockIndex().x} * kRowsAtOnce) {
    const int64_t left = shape.rows - first;
    count = static_cast<int>(left < kRowsAtOnce ? left : kRowsAtOnce);
  }
};

// Block (rows, head, outputs): kProductLanes threads for an output of kRowsAtOnce rows.
template <typename T, DType kFormat>
PAGEMILL_KERNEL MultiplyHead(HeadShape shape, Rows<const T> x, Rows<const uint8_t> w, Rows<T> y) {
  const int thread = static_cast<int>(ThreadIndex().x);
  const BlockRows rows(shape);
  const int64_t head = BlockIndex().y;
  const int64_t m = int64_t{BlockIndex().z} * kOutputs + thread / kProductLanes;
  const bool exists = m < shape.outputs;  // if not, it sums with the others of its warp
  const T* of_x[kRowsAtOnce];
  PAGEMILL_UNROLL
  for (int i = 0; i < kRowsAtOnce; ++i) of_x[i] = x[rows.first + i] + head * shape.inputs;
  float sums[kRowsAtOnce];
  MultiplyWithRow<kFormat>(of_x, rows.count, w[head] + (exists ? m : 0) * shape.w_row_bytes,
                           shape.inputs, sums);
  if (thread % kProductLanes != 0 || !exists) return;
  PAGEMILL_UNROLL
  for (int i = 0; i < kRowsAtOnce; ++i) {
    if (i < rows.count) y[rows.first + i][head * shape.outputs + m] = FromFloat<T>(sums[i]);
  }
}

// Block (rows, head, outputs): a thread for eight columns of W, each the chain of an output.
template <typename T, DType kFormat>
PAGEMILL_KERNEL MultiplyTransposed(HeadShape shape, Rows<const T> x, Rows<const uint8_t> w,
                                   Rows<T> y) {
  const BlockRows rows(shape);
  const int64_t head = BlockIndex().y;
  const int64_t m = int64_t{BlockIndex().z} * kColumns + ThreadIndex().x * kWeightsAtOnce;
  if (m >= shape.outputs) return;
  const int64_t left = shape.outputs - m;
  const int count = static_cast<int>(left < kWeightsAtOnce ? left : kWeightsAtOnce);
  float sums[kRowsAtOnce][kWeightsAtOnce] = {};
  for (int64_t k = 0; k < shape.inputs; ++k) {
    float of_w[kWeightsAtOnce];
    LoadWeights<kFormat>(w[head] + k * shape.w_row_bytes, m, count, of_w);
    PAGEMILL_UNROLL
    for (int i = 0; i < kRowsAtOnce; ++i) {
      if (i >= rows.count) break;
      const float of_x = ToFloat(x[rows.first + i][head * shape.inputs + k]);
      PAGEMILL_UNROLL
      for (int j = 0; j < kWeightsAtOnce; ++j) sums[i][j] += of_x * of_w[j];
    }
  }
  PAGEMILL_UNROLL
  for (int i = 0; i < kRowsAtOnce; ++i) {
    if (i >= rows.count) break;
    T* const to = y[rows.first + i] + head * shape.outputs + m;
    PAGEMILL_UNROLL
    for (int j = 0; j < kWeightsAtOnce; ++j) {
      if (j < count) to[j] = FromFloat<T>(sums[i][j]);
    }
  }
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const TensorView& x = call.inputs[0];
  const TensorView& w = call.inputs[1];
  const TensorView& y = call.outputs[0];
  const bool transposed = call.attributes->GetInt("transposed", 0) != 0;
  const HeadShape shape = {x.shape[0], x.shape[1], x.shape[2], y.shape[2],
                           RowBytes(w.dtype, w.shape[2])};
  const LaunchShape launch = {
      .blocks = {DivideUp(shape.rows, kRowsAtOnce), static_cast<uint32_t>(shape.heads),
                 DivideUp(shape.outputs, transposed ? kColumns : kOutputs)},
      .threads = {transposed ? BlockThreads(shape.outputs, kWeightsAtOnce, kThreads) : kThreads}};
  WithActType(x.dtype, [&]<typename T>(T) {
    ops::WithWeightFormat(w.dtype, [&]<DType kFormat>() {
      Launch(*context.stream, launch,
             transposed ? MultiplyTransposed<T, kFormat> : MultiplyHead<T, kFormat>, shape,
             RowsOf<const T>(x), RowsOf<const uint8_t>(w), RowsOf<T>(y));
    });
  });
}

bool Supports(const device::Capabilities& caps, const ops::OpCall& call) {
  return OnEveryGpu(caps, call) && IsReadableFormat(call.inputs[1]);
}

constexpr ops::Kernel kKernels[] = {{"head_linear", "gpu", 10, Supports, Run}};

}  // namespace

std::span<const ops::Kernel> HeadLinearKernels() { return kKernels; }

}  // namespace pagemill::gpu
