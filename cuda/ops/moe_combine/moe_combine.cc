#include "cc/ops/moe_combine/moe_combine.h"

#include "cuda/gpu_elements.h"
#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/kernels.h"

namespace pagemill::gpu {
namespace {

// `choice_step`: elements of x from one choice to the next, or 0.
template <typename T>
PAGEMILL_KERNEL CombineRow(Rows<const T> x, Rows<const float> weights, Rows<T> y, int64_t size,
                           int64_t choices, int64_t choice_step) {
  LetNextBegin();
  AwaitInputs();
  ForElements(size, [&](int64_t row, int64_t i) {
    float sum = 0;
    for (int64_t j = 0; j < choices; ++j) {
      sum += weights[row][j] * ToFloat(x[row][j * choice_step + i]);
    }
    y[row][i] = FromFloat<T>(sum);
  });
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const TensorView& x = call.inputs[0];
  const TensorView& weights = call.inputs[1];
  const TensorView& y = call.outputs[0];
  const int64_t size = y.RowElements();
  WithActType(x.dtype, [&]<typename T>(T) {
    LaunchShape shape = ShapeOfElements(y.shape[0], size);
    shape.early = true;
    Launch(*context.stream, shape, CombineRow<T>, RowsOf<const T>(x), RowsOf<const float>(weights),
           RowsOf<T>(y), size, weights.shape[1], ops::moe_combine::ChoiceStep(call));
  });
}

constexpr ops::Kernel kKernels[] = {{"moe_combine", "gpu", 10, OnEveryGpu, Run}};

}  // namespace

std::span<const ops::Kernel> MoeCombineKernels() { return kKernels; }

}  // namespace pagemill::gpu
