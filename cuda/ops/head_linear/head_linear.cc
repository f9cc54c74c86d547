#include "cc/ops/head_linear/head_linear.h"

#include <type_traits>

#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/kernels.h"
#include "cuda/ops/linear/converted_weights.h"
#include "cuda/ops/linear/row_products.h"
#include "cuda/ops/linear/weights.h"

namespace pagemill::gpu {
namespace {

// A block that sums along columns of W.
constexpr int kThreads = 128;
constexpr int64_t kColumns = int64_t{kThreads} * kWeightsAtOnce;

struct HeadShape {
  int64_t rows, heads, inputs, outputs;  // N, J, K, M
};

// Rows of a result in the type of x, or in f32.
template <typename T>
struct ResultRows {
  Rows<T> y;
  Rows<float> wide_y;
  bool wide;

  PAGEMILL_DEVICE void Store(int64_t row, int64_t column, float value) const {
    if (wide) {
      wide_y[row][column] = value;
    } else {
      y[row][column] = FromFloat<T>(value);
    }
  }
};

template <typename T>
ResultRows<T> ResultRowsOf(const TensorView& y) {
  const bool wide = y.dtype == DType::kF32 && !std::is_same_v<T, float>;
  return {.y = RowsOf<T>(y), .wide_y = RowsOf<float>(y), .wide = wide};
}

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

// Block (rows, head, outputs): some outputs of kRowsAtOnce rows.
template <typename T, typename W>
PAGEMILL_KERNEL MultiplyHead(HeadShape shape, Rows<const T> x, W w, ResultRows<T> y) {
  const BlockRows rows(shape);
  const int64_t head = BlockIndex().y;
  const BlockOutputs<W> outputs(int64_t{BlockIndex().z} * BlockOutputs<W>::kCount, shape.outputs);
  const T* of_x[kRowsAtOnce];
  PAGEMILL_UNROLL
  for (int i = 0; i < kRowsAtOnce; ++i) of_x[i] = x[rows.first + i] + head * shape.inputs;
  float sums[kRowsAtOnce];
  outputs.Multiply(of_x, rows.count, w, head, shape.inputs, sums);
  if (!outputs.HasSums()) return;
  const int64_t m = head * shape.outputs + outputs.own();
  PAGEMILL_UNROLL
  for (int i = 0; i < kRowsAtOnce; ++i) {
    if (i < rows.count) y.Store(rows.first + i, m, sums[i]);
  }
}

// Block (rows, head, outputs): a thread for eight columns of W, each the chain of an output.
template <typename T, typename W>
PAGEMILL_KERNEL MultiplyTransposed(HeadShape shape, Rows<const T> x, W w, ResultRows<T> y) {
  const BlockRows rows(shape);
  const int64_t head = BlockIndex().y;
  const int64_t m = int64_t{BlockIndex().z} * kColumns + ThreadIndex().x * kWeightsAtOnce;
  if (m >= shape.outputs) return;
  const int64_t left = shape.outputs - m;
  const int count = static_cast<int>(left < kWeightsAtOnce ? left : kWeightsAtOnce);
  float sums[kRowsAtOnce][kWeightsAtOnce] = {};
  for (int64_t k = 0; k < shape.inputs; ++k) {
    float of_w[kWeightsAtOnce];
    const typename W::Row row = w.At(head, k);
    row.Load(m, count, of_w);
    PAGEMILL_UNROLL
    for (int i = 0; i < kRowsAtOnce; ++i) {
      if (i >= rows.count) break;
      const float of_x = ToFloat(x[rows.first + i][head * shape.inputs + k]) * row.Factor();
      PAGEMILL_UNROLL
      for (int j = 0; j < kWeightsAtOnce; ++j) sums[i][j] += of_x * of_w[j];
    }
  }
  PAGEMILL_UNROLL
  for (int i = 0; i < kRowsAtOnce; ++i) {
    if (i >= rows.count) break;
    PAGEMILL_UNROLL
    for (int j = 0; j < kWeightsAtOnce; ++j) {
      if (j < count) y.Store(rows.first + i, head * shape.outputs + m + j, sums[i][j]);
    }
  }
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const TensorView& x = call.inputs[0];
  const TensorView& w = call.inputs[1];
  const TensorView& y = call.outputs[0];
  const bool transposed = call.attributes->GetInt("transposed", 0) != 0;
  const HeadShape shape = {x.shape[0], x.shape[1], x.shape[2], y.shape[2]};
  const auto blocks = [&](int64_t outputs) -> GridSizes {
    return {DivideUp(shape.rows, kRowsAtOnce), static_cast<uint32_t>(shape.heads),
            DivideUp(shape.outputs, outputs)};
  };
  WithActType(x.dtype, [&]<typename T>(T) {
    WithWeights(w, [&]<typename W>(const W& weights) {
      if (transposed) {
        Launch(*context.stream,
               {.blocks = blocks(kColumns),
                .threads = {BlockThreads(shape.outputs, kWeightsAtOnce, kThreads)}},
               MultiplyTransposed<T, W>, shape, RowsOf<const T>(x), weights, ResultRowsOf<T>(y));
      } else {
        Launch(*context.stream,
               {.blocks = blocks(BlockOutputs<W>::kCount), .threads = {BlockOutputs<W>::kThreads}},
               MultiplyHead<T, W>, shape, RowsOf<const T>(x), weights, ResultRowsOf<T>(y));
      }
    });
  });
}

bool Supports(const device::Capabilities& caps, const ops::OpCall& call) {
  return OnEveryGpu(caps, call) && AreReadable(call.inputs[1]);
}

constexpr ops::WeightPacking kConverted = ConvertedWeights(/*inputs=*/0b10);
constexpr ops::Kernel kGpu = {"head_linear", "gpu", 10, Supports, Run};
constexpr ops::Kernel kKernels[] = {kGpu, OfConverted<Supports, kConverted>(kGpu)};

}  // namespace

std::span<const ops::Kernel> HeadLinearKernels() { return kKernels; }

}  // namespace pagemill::gpu
