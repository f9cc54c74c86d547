#include "cc/ops/gated_activation/gated_activation.h"

#include <limits>

#include "cuda/gpu_elements.h"
#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/activation/activate.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/kernels.h"

namespace pagemill::gpu {
namespace {

template <typename T>
PAGEMILL_KERNEL ActivateGate(Rows<const T> gate, Rows<const T> up, Rows<T> y, int64_t size,
                             ops::ActivationKind kind, float limit, float up_offset) {
  LetNextBegin();
  AwaitInputs();
  ForElements(size, [&](int64_t row, int64_t i) {
    const float x = ToFloat(gate[row][i]);
    const float factor = Clamp(ToFloat(up[row][i]), -limit, limit) + up_offset;
    y[row][i] = FromFloat<T>(Activate(kind, x > limit ? limit : x) * factor);
  });
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const ops::GatedActivationArgs args = ops::ToGatedActivationArgs(call);
  const int64_t size = args.gate.RowElements();
  const bool limited = args.limit > 0;
  LaunchShape shape = ShapeOfElements(args.gate.shape[0], size);
  shape.early = true;
  WithActType(args.gate.dtype, [&]<typename T>(T) {
    Launch(*context.stream, shape, ActivateGate<T>,
           RowsOf<const T>(args.gate), RowsOf<const T>(args.up), RowsOf<T>(args.y), size, args.kind,
           limited ? args.limit : std::numeric_limits<float>::infinity(),
           limited ? args.up_offset : 0);
  });
}

constexpr ops::Kernel kKernels[] = {{"gated_activation", "gpu", 10, OnEveryGpu, Run}};

}  // namespace

std::span<const ops::Kernel> GatedActivationKernels() { return kKernels; }

}  // namespace pagemill::gpu
