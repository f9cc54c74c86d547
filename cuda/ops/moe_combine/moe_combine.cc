#include "cc/ops/moe_combine/moe_combine.h"

#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/kernels.h"
#include "cuda/ops/vectors/vectors_of_row.h"

namespace pagemill::gpu {
namespace {

// `choice_step`: elements of x from one choice to the next, or 0.
template <typename T, int kSize>
PAGEMILL_KERNEL_OF(kVectorThreads, 10)
CombineRow(Rows<const T> x, Rows<const float> weights, Rows<T> y, int64_t size, int64_t choices,
           int64_t choice_step) {
  LetNextBegin();
  AwaitInputs();
  using Elements = Vector<T, kSize>;
  WithOwnVector<kSize>(size, [&](int64_t row, int32_t i) {
    constexpr int kAhead = 4;  // choices whose loads are under way
    const T* const from = x[row] + i;
    const float* const of_row = weights[row];
    float sums[kSize] = {};
    const auto add = [&]<int kCount>(int64_t choice) {
      Elements loaded[kCount];
      PAGEMILL_UNROLL
      for (int j = 0; j < kCount; ++j) {
        loaded[j] = *reinterpret_cast<const Elements*>(from + (choice + j) * choice_step);
      }
      PAGEMILL_UNROLL
      for (int j = 0; j < kCount; ++j) {
        const float factor = of_row[choice + j];
        PAGEMILL_UNROLL
        for (int k = 0; k < kSize; ++k) sums[k] += factor * ToFloat(loaded[j].values[k]);
      }
    };
    int64_t choice = 0;
    for (; choice + kAhead <= choices; choice += kAhead) add.template operator()<kAhead>(choice);
    for (; choice < choices; ++choice) add.template operator()<1>(choice);
    Elements stored;
    PAGEMILL_UNROLL
    for (int k = 0; k < kSize; ++k) stored.values[k] = FromFloat<T>(sums[k]);
    *reinterpret_cast<Elements*>(y[row] + i) = stored;
  });
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const TensorView& x = call.inputs[0];
  const TensorView& weights = call.inputs[1];
  const TensorView& y = call.outputs[0];
  const int64_t size = y.RowElements();
  WithActType(x.dtype, [&]<typename T>(T) {
    const auto launch = [&]<int kSize>() {
      LaunchShape shape = ShapeOfVectors<kSize>(y.shape[0], size);
      shape.early = true;
      Launch(*context.stream, shape, CombineRow<T, kSize>, RowsOf<const T>(x),
             RowsOf<const float>(weights), RowsOf<T>(y), size, weights.shape[1],
             ops::moe_combine::ChoiceStep(call));
    };
    WithVectorSize<T>(size, launch, x, y);
  });
}

constexpr ops::Kernel kKernels[] = {{"moe_combine", "gpu", 10, OnEveryGpu, Run}};

}  // namespace

std::span<const ops::Kernel> MoeCombineKernels() { return kKernels; }

}  // namespace pagemill::gpu
