#include "cc/ops/add/add.h"

#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/kernels.h"

namespace pagemill::gpu {
namespace {

constexpr int64_t kElements = 1024;  // of a row, for each block
constexpr uint32_t kThreads = 256;

// b is a matrix of the type of a, or one row of floats for all rows.
template <typename T, typename B>
PAGEMILL_KERNEL AddRow(Rows<const T> a, Rows<const B> b, Rows<T> y, int64_t size) {
  const int64_t row = BlockIndex().x;
  const int64_t begin = BlockIndex().y * kElements;
  const int64_t end = begin + kElements < size ? begin + kElements : size;
  for (int64_t i = begin + ThreadIndex().x; i < end; i += kThreads) {
    y[row][i] = FromFloat<T>(ToFloat(a[row][i]) + ToFloat(b[row][i]));
  }
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const ops::AddArgs args = ops::ToAddArgs(call);
  const int64_t size = args.a.RowElements();
  const LaunchShape shape = {
      .blocks = {static_cast<uint32_t>(args.a.shape[0]), DivideUp(size, kElements)},
      .threads = {kThreads}};
  WithActType(args.a.dtype, [&]<typename T>(T) {
    const Rows<const T> a = RowsOf<const T>(args.a);
    const Rows<T> y = RowsOf<T>(args.y);
    if (args.b.rank == 1) {
      const Rows<const float> b = {args.b.Data<const float>(), 0};
      Launch(*context.stream, shape, AddRow<T, float>, a, b, y, size);
    } else {
      Launch(*context.stream, shape, AddRow<T, T>, a, RowsOf<const T>(args.b), y, size);
    }
  });
}

constexpr ops::Kernel kKernels[] = {{"add", "gpu", 10, OnEveryGpu, Run}};

}  // namespace

std::span<const ops::Kernel> AddKernels() { return kKernels; }

}  // namespace pagemill::gpu
