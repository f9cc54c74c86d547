// Scaled weights in float: eight lanes, eight sums in registers.
#include <cstdint>

#include "cc/ops/linear/scaled/packed_scaled.h"
#include "cc/ops/linear/scaled/scaled_float_inl.h"

namespace pagemill::ops::scaled {
namespace {

struct Avx2 {
  using Floats = float __attribute__((vector_size(32)));
  using Bits = uint32_t __attribute__((vector_size(32)));
  using Ints = int32_t __attribute__((vector_size(32)));
  static constexpr int kLanes = 8;
  static constexpr int kTileN = 4;
};

}  // namespace

constinit const linear::PackedGemm kAvx2Kernels = ScaledFloat<Avx2>::kKernels;

}  // namespace pagemill::ops::scaled
