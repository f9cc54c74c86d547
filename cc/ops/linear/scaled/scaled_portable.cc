// Scaled weights in float: four lanes, which is one register on ASIMD, VXE and SSE2.
#include <cstdint>

#include "cc/ops/linear/scaled/packed_scaled.h"
#include "cc/ops/linear/scaled/scaled_float_inl.h"

namespace pagemill::ops::scaled {
namespace {

struct Portable {
  using Floats = float __attribute__((vector_size(16)));
  using Bits = uint32_t __attribute__((vector_size(16)));
  using Ints = int32_t __attribute__((vector_size(16)));
  static constexpr int kLanes = 4;
  static constexpr int kTileN = 4;
};

}  // namespace

constinit const linear::PackedGemm kPortableKernels = ScaledFloat<Portable>::kKernels;

}  // namespace pagemill::ops::scaled
