#include "cc/ops/sparse_relu/sparse_relu.h"

#include "cuda/gpu_launch.h"
#include "cuda/gpu_reduce.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/kernels.h"

namespace pagemill::gpu {
namespace {

constexpr int64_t kElementsPerThread = 4;

// A block for each row; its variance is that of differences to the mean.
template <typename T>
PAGEMILL_KERNEL CutRow(Rows<const T> x, Rows<T> y, int64_t size, float deviations) {
  const T* const from = x[BlockIndex().x];
  T* const to = y[BlockIndex().x];
  float sum = 0;
  for (int64_t i = ThreadIndex().x; i < size; i += BlockSize().x) sum += ToFloat(from[i]);
  const float mean = BlockSum(sum) / static_cast<float>(size);
  float squares = 0;
  for (int64_t i = ThreadIndex().x; i < size; i += BlockSize().x) {
    const float difference = ToFloat(from[i]) - mean;
    squares += difference * difference;
  }
  const float deviation = sqrtf(BlockSum(squares) / static_cast<float>(size));
  for (int64_t i = ThreadIndex().x; i < size; i += BlockSize().x) {
    const float above = ToFloat(from[i]) - mean - deviations * deviation;
    to[i] = FromFloat<T>(above < 0 ? 0 : above);  // NaN stays
  }
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const ops::SparseReluArgs args = ops::ToSparseReluArgs(call);
  const int64_t size = args.x.RowElements();
  const LaunchShape shape = {.blocks = {static_cast<uint32_t>(args.x.shape[0])},
                             .threads = {BlockThreads(size, kElementsPerThread)}};
  WithActType(args.x.dtype, [&]<typename T>(T) {
    Launch(*context.stream, shape, CutRow<T>, RowsOf<const T>(args.x), RowsOf<T>(args.y), size,
           static_cast<float>(args.deviations));
  });
}

constexpr ops::Kernel kKernels[] = {{"sparse_relu", "gpu", 10, OnEveryGpu, Run}};

}  // namespace

std::span<const ops::Kernel> SparseReluKernels() { return kKernels; }

}  // namespace pagemill::gpu
