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
template <typename T, int kSize>
PAGEMILL_KERNEL AddRmsNormGroup(Rows<const T> x, Rows<const T> residual, const float* w, Rows<T> y,
                                Rows<T> sum, int64_t size, float eps, float offset) {
  LetNextBegin();
  AwaitInputs();
  const int64_t row = BlockIndex().x, begin = BlockIndex().y * size;
  using Elements = Vector<T, kSize>;
  const auto read = [begin](const T* of_row, int32_t i) {
    return *reinterpret_cast<const Elements*>(of_row + begin + i);
  };
  const auto add = [&](int32_t i) {
    const Elements a = read(x[row], i), b = read(residual[row], i);
    Elements both;
    PAGEMILL_UNROLL
    for (int j = 0; j < kSize; ++j) {
      both.values[j] = FromFloat<T>(ToFloat(a.values[j]) + ToFloat(b.values[j]));
    }
    *reinterpret_cast<Elements*>(sum[row] + begin + i) = both;
    return both;
  };
  NormalizeRow<T, kSize>(add, [&](int32_t i) { return read(sum[row], i); }, w, y[row] + begin,
                         size, eps, offset);
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const ops::AddRmsNormArgs args = ops::ToAddRmsNormArgs(call);
  const int64_t size = args.w.shape[0];
  WithActType(args.x.dtype, [&]<typename T>(T) {
    const auto launch = [&]<int kSize>() {
      Launch(*context.stream, NormShape<kSize>(args.x, size), AddRmsNormGroup<T, kSize>,
             RowsOf<const T>(args.x), RowsOf<const T>(args.residual),
             args.w.Data<const float>(), RowsOf<T>(args.y), RowsOf<T>(args.sum), size, args.eps,
             args.weight_offset);
    };
    WithNormVectorSize<T>(size, launch, args.w, args.x, args.residual, args.y, args.sum);
  });
}

constexpr ops::Kernel kKernels[] = {{"add_rms_norm", "gpu", 10, OnEveryGpu, Run}};

}  // namespace

std::span<const ops::Kernel> AddRmsNormKernels() { return kKernels; }

}  // namespace pagemill::gpu
