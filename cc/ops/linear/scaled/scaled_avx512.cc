// Scaled weights in float: 16 lanes, 16 sums in registers.
#include <cstdint>

#include "cc/ops/linear/scaled/packed_scaled.h"
#include "cc/ops/linear/scaled/scaled_float_inl.h"

namespace pagemill::ops::scaled {
namespace {

struct Avx512 {
  using Floats = float __attribute__((vector_size(64)));
  using Bits = uint32_t __attribute__((vector_size(64)));
  using Ints = int32_t __attribute__((vector_size(64)));
  static constexpr int kLanes = 16;
  static constexpr int kTileN = 8;
};

}  // namespace

constinit const linear::PackedGemm kAvx512Kernels = ScaledFloat<Avx512>::kKernels;

}  // namespace pagemill::ops::scaled
