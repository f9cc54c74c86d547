#include "cc/ops/layer_norm/layer_norm.h"

#include "cuda/gpu_launch.h"
#include "cuda/gpu_reduce.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/kernels.h"

namespace pagemill::gpu {
namespace {

// As of rms_norm_row.h: chains of sums have at most 64 elements in rows of 2^16.
constexpr int64_t kElementsPerThread = 4;

// A block for each group of a row. `parameter_step`: 0 if all groups have the same weights, else
// `size`.
template <typename T>
PAGEMILL_KERNEL LayerNormGroup(Rows<const T> rows, const float* weights, const float* biases,
                               Rows<T> results, int64_t size, int64_t parameter_step, float eps,
                               float offset) {
  const int64_t group = BlockIndex().y;
  const T* const x = rows[BlockIndex().x] + group * size;
  T* const y = results[BlockIndex().x] + group * size;
  const float* const w = weights + group * parameter_step;
  const float* const b = biases + group * parameter_step;
  const int64_t first = ThreadIndex().x, step = BlockSize().x;
  float sum = 0;
  for (int64_t i = first; i < size; i += step) sum += ToFloat(x[i]);
  const float mean = BlockSum(sum) / static_cast<float>(size);
  float squares = 0;
  for (int64_t i = first; i < size; i += step) {
    const float difference = ToFloat(x[i]) - mean;
    squares += difference * difference;
  }
  const float factor = InverseSqrt(BlockSum(squares) / static_cast<float>(size) + eps);
  for (int64_t i = first; i < size; i += step) {
    y[i] = FromFloat<T>((ToFloat(x[i]) - mean) * factor * (w[i] + offset) + b[i]);
  }
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const ops::LayerNormArgs args = ops::ToLayerNormArgs(call);
  const int64_t size = args.size();
  const LaunchShape shape = {
      .blocks = {static_cast<uint32_t>(args.x.shape[0]), DivideUp(args.x.RowElements(), size)},
      .threads = {BlockThreads(size, kElementsPerThread)}};
  WithActType(args.x.dtype, [&]<typename T>(T) {
    Launch(*context.stream, shape, LayerNormGroup<T>, RowsOf<const T>(args.x),
           args.w.Data<const float>(), args.b.Data<const float>(), RowsOf<T>(args.y), size,
           args.ParametersOf(1), args.eps, args.weight_offset);
  });
}

constexpr ops::Kernel kKernels[] = {{"layer_norm", "gpu", 10, OnEveryGpu, Run}};

}  // namespace

std::span<const ops::Kernel> LayerNormKernels() { return kKernels; }

}  // namespace pagemill::gpu
