#include "cc/ops/gated_activation/gated_activation.h"

#include <limits>

#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/activation/activate.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/kernels.h"
#include "cuda/ops/vectors/vectors_of_row.h"

namespace pagemill::gpu {
namespace {

template <typename T, int kSize>
PAGEMILL_KERNEL ActivateGate(Rows<const T> gate, Rows<const T> up, Rows<T> y, int64_t size,
                             ops::ActivationKind kind, float limit, float up_offset) {
  LetNextBegin();
  AwaitInputs();
  using Elements = Vector<T, kSize>;
  WithActivationKind(kind, [&]<ops::ActivationKind kKind>() {
    WithOwnVector<kSize>(size, [&](int64_t row, int32_t i) {
      const Elements gates = *reinterpret_cast<const Elements*>(gate[row] + i);
      const Elements ups = *reinterpret_cast<const Elements*>(up[row] + i);
      Elements products;
      PAGEMILL_UNROLL
      for (int j = 0; j < kSize; ++j) {
        const float x = ToFloat(gates.values[j]);
        const float factor = Clamp(ToFloat(ups.values[j]), -limit, limit) + up_offset;
        products.values[j] = FromFloat<T>(Activate<kKind>(x > limit ? limit : x) * factor);
      }
      *reinterpret_cast<Elements*>(y[row] + i) = products;
    });
  });
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const ops::GatedActivationArgs args = ops::ToGatedActivationArgs(call);
  const int64_t size = args.gate.RowElements();
  const bool limited = args.limit > 0;
  WithActType(args.gate.dtype, [&]<typename T>(T) {
    const auto launch = [&]<int kSize>() {
      LaunchShape shape = ShapeOfVectors<kSize>(args.gate.shape[0], size);
      shape.early = true;
      Launch(*context.stream, shape, ActivateGate<T, kSize>, RowsOf<const T>(args.gate),
             RowsOf<const T>(args.up), RowsOf<T>(args.y), size, args.kind,
             limited ? args.limit : std::numeric_limits<float>::infinity(),
             limited ? args.up_offset : 0);
    };
    WithVectorSize<T>(size, launch, args.gate, args.up, args.y);
  });
}

constexpr ops::Kernel kKernels[] = {{"gated_activation", "gpu", 10, OnEveryGpu, Run}};

}  // namespace

std::span<const ops::Kernel> GatedActivationKernels() { return kKernels; }

}  // namespace pagemill::gpu
