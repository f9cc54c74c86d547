#include "cc/ops/merge_attention/merge_attention.h"

#include "cuda/gpu_elements.h"
#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/kernels.h"

namespace pagemill::gpu {
namespace {

// A set without keys, or one that is missing, has lse -infinity, and its x is not read.
template <typename T>
struct AttentionSet {
  const T* data;  // x; null if it is missing
  int64_t stride;
  Rows<const float> lse;

  PAGEMILL_DEVICE float Lse(int64_t row, int64_t head) const {
    return data == nullptr ? -INFINITY : lse[row][head];
  }
  PAGEMILL_DEVICE float Part(float weight, int64_t row, int64_t i) const {
    return weight == 0 ? 0 : weight * ToFloat(data[row * stride + i]);
  }
};

template <typename T>
PAGEMILL_KERNEL MergeSets(AttentionSet<T> x0, AttentionSet<T> x1, const float* sinks, Rows<T> y,
                          int64_t size, int64_t row_size) {
  ForElements(row_size, [&](int64_t row, int64_t i) {
    const int64_t head = i / size;
    const float lse0 = x0.Lse(row, head), lse1 = x1.Lse(row, head);
    const float sink = sinks == nullptr ? -INFINITY : sinks[head];
    const bool empty = lse0 == -INFINITY && lse1 == -INFINITY && sink == -INFINITY;
    const float most = fmaxf(fmaxf(lse0, lse1), sink);
    const float weight0 = empty ? 0 : Exp(lse0 - most), weight1 = empty ? 0 : Exp(lse1 - most);
    const float sum = empty ? 1 : weight0 + weight1 + Exp(sink - most);
    y[row][i] = FromFloat<T>(x0.Part(weight0 / sum, row, i) + x1.Part(weight1 / sum, row, i));
  });
}

template <typename T>
AttentionSet<T> SetOf(const ops::merge_attention::Args& args, size_t set) {
  if (set >= args.sets) return {};
  const Rows<const T> x = RowsOf<const T>(args.x[set]);
  return {x.data, x.stride, RowsOf<const float>(args.lse[set])};
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const ops::merge_attention::Args args = ops::merge_attention::ToArgs(call);
  const int64_t row_size = args.heads() * args.size();
  WithActType(args.y.dtype, [&]<typename T>(T) {
    Launch(*context.stream, ShapeOfElements(args.y.shape[0], row_size), MergeSets<T>,
           SetOf<T>(args, 0), SetOf<T>(args, 1), args.sinks, RowsOf<T>(args.y), args.size(),
           row_size);
  });
}

constexpr ops::Kernel kKernels[] = {{"merge_attention", "gpu", 10, OnEveryGpu, Run}};

}  // namespace

std::span<const ops::Kernel> MergeAttentionKernels() { return kKernels; }

}  // namespace pagemill::gpu
