#include "cc/ops/add_rms_norm/add_rms_norm.h"

#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/kernels.h"
#include "cuda/ops/rms_norm/rms_norm_row.h"

namespace pagemill::gpu {
namespace {

// A block for each of the `groups` runs of `size` elements of a row. The norm is that of the stored
// sum.
template <typename T>
PAGEMILL_KERNEL AddRmsNormGroup(Rows<const T> x, Rows<const T> residual, const float* w, Rows<T> y,
                                Rows<T> sum, int64_t size, float eps, float offset) {
  LetNextBegin();
  AwaitInputs();
  const int64_t row = BlockIndex().x, begin = BlockIndex().y * size;
  T* const to = sum[row] + begin;
  for (int64_t i = ThreadIndex().x; i < size; i += BlockSize().x) {
    to[i] = FromFloat<T>(ToFloat(x[row][begin + i]) + ToFloat(residual[row][begin + i]));
  }
  NormalizeRow(to, w, y[row] + begin, size, eps, offset);
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const ops::AddRmsNormArgs args = ops::ToAddRmsNormArgs(call);
  const int64_t size = args.w.shape[0];
  const LaunchShape shape = {
      .blocks = {static_cast<uint32_t>(args.x.shape[0]), DivideUp(args.x.RowElements(), size)},
      .threads = {BlockThreads(size, kNormElementsPerThread)},
      .early = true};
  WithActType(args.x.dtype, [&]<typename T>(T) {
    Launch(*context.stream, shape, AddRmsNormGroup<T>, RowsOf<const T>(args.x),
           RowsOf<const T>(args.residual), args.w.Data<const float>(), RowsOf<T>(args.y),
           RowsOf<T>(args.sum), size, args.eps, args.weight_offset);
  });
}

constexpr ops::Kernel kKernels[] = {{"add_rms_norm", "gpu", 10, OnEveryGpu, Run}};

}  // namespace

std::span<const ops::Kernel> AddRmsNormKernels() { return kKernels; }

}  // namespace pagemill::gpu
