#include "cc/ops/rms_norm/rms_norm.h"

#include <bit>
#include <cstdint>

#include "cuda/gpu_launch.h"
#include "cuda/gpu_reduce.h"
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
  const auto read = [&](int32_t i) {
    return *reinterpret_cast<const Vector<T, kSize>*>(from + i);
  };
  NormalizeRow<T, kSize>(read, read, w + group * weight_step, y[row] + group * size, size, eps,
                         offset);
}

// Groups of one vector a lane or fewer, such as heads: some lanes of a warp, a power of two, for
// each. The order of a sum is that of RmsNormGroup, whose other lanes would add zeros.
constexpr int64_t kMostLanes = 32;
constexpr int64_t kHeadThreads = 128;

template <typename T, int kSize>
PAGEMILL_KERNEL RmsNormHeads(Rows<const T> x, const float* w, Rows<T> y, int32_t size,
                             int32_t groups, int32_t lanes, int32_t weight_step, float eps,
                             float offset) {
  LetNextBegin();
  AwaitInputs();
  using Elements = Vector<T, kSize>;
  const int64_t row = BlockIndex().x;
  const auto thread = static_cast<int32_t>(BlockIndex().y * BlockSize().x + ThreadIndex().x);
  const int32_t group = thread / lanes, i = thread % lanes * kSize;
  const bool has_elements = group < groups && i < size;
  Elements own = {};
  float of_w[kSize] = {};
  if (has_elements) {
    own = *reinterpret_cast<const Elements*>(x[row] + group * size + i);
    LoadWeights(w + group * weight_step + i, of_w);
  }
  const float squares = WarpReduce(SumOfSquares(own), Sum{}, lanes);
  const float factor = InverseSqrt(squares / static_cast<float>(size) + eps);
  if (has_elements) {
    *reinterpret_cast<Elements*>(y[row] + group * size + i) = Scaled(own, factor, of_w, offset);
  }
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const ops::RmsNormArgs args = ops::ToRmsNormArgs(call);
  const int64_t size = args.size(), groups = args.x.RowElements() / size;
  const int64_t weight_step = args.w.shape[0] == size ? 0 : size;
  WithActType(args.x.dtype, [&]<typename T>(T) {
    const auto launch = [&]<int kSize>() {
      const Rows<const T> x = RowsOf<const T>(args.x);
      const Rows<T> y = RowsOf<T>(args.y);
      const float* const w = args.w.Data<const float>();
      if constexpr (kSize > 1) {
        if (size <= kMostLanes * kSize) {
          const auto lanes =
              static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(size / kSize)));
          const uint32_t threads = BlockThreads(groups * lanes, 1, kHeadThreads);
          const LaunchShape shape = {.blocks = {static_cast<uint32_t>(args.x.shape[0]),
                                                DivideUp(groups * lanes, threads)},
                                     .threads = {threads},
                                     .early = true};
          return Launch(*context.stream, shape, RmsNormHeads<T, kSize>, x, w, y, size, groups,
                        lanes, weight_step, args.eps, args.weight_offset);
        }
      }
      Launch(*context.stream, NormShape<kSize>(args.x, size), RmsNormGroup<T, kSize>, x, w, y, size,
             weight_step, args.eps, args.weight_offset);
    };
    WithNormVectorSize<T>(size, launch, args.w, args.x, args.y);
  });
}

constexpr ops::Kernel kKernels[] = {{"rms_norm", "gpu", 10, OnEveryGpu, Run}};

}  // namespace

std::span<const ops::Kernel> RmsNormKernels() { return kKernels; }

}  // namespace pagemill::gpu
