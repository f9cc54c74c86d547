#include "cc/ops/rms_norm/rms_norm.h"

#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/kernels.h"
#include "cuda/ops/rms_norm/rms_norm_row.h"

namespace pagemill::gpu {
namespace {

// A block for each group of a row. `weight_step`: 0 if all groups have the same weights, else
// `size`.
template <typename T, int kSize>
PAGEMILL_KERNEL RmsNormGroup(Rows<const T> x, const float* w, Rows<T> y, int64_t size,
                             int64_t weight_step, float eps, float offset) {
  LetNextBegin();
  AwaitInputs();
  const int64_t row = BlockIndex().x, group = BlockIndex().y;
  const T* const from = x[row] + group * size;
  const auto read = [&](int64_t i) {
    return *reinterpret_cast<const Vector<T, kSize>*>(from + i);
  };
  NormalizeRow<T, kSize>(read, read, w + group * weight_step, y[row] + group * size, size, eps,
                         offset);
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const ops::RmsNormArgs args = ops::ToRmsNormArgs(call);
  const int64_t size = args.size();
  WithActType(args.x.dtype, [&]<typename T>(T) {
    const auto launch = [&]<int kSize>() {
      Launch(*context.stream, NormShape<kSize>(args.x, size), RmsNormGroup<T, kSize>,
             RowsOf<const T>(args.x), args.w.Data<const float>(),
             RowsOf<T>(args.y), size, args.w.shape[0] == size ? 0 : size, args.eps,
             args.weight_offset);
    };
    WithVectorSize<T>(size, launch, args.x, args.y);
  });
}

constexpr ops::Kernel kKernels[] = {{"rms_norm", "gpu", 10, OnEveryGpu, Run}};

}  // namespace

std::span<const ops::Kernel> RmsNormKernels() { return kKernels; }

}  // namespace pagemill::gpu
