// Products with scaled weights in AMX tiles.

// GCC 12 warns of the deliberately undefined registers inside its own intrinsics.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

#include "cc/ops/linear/scaled/e4m3_amx_inl.h"
#include "cc/ops/linear/scaled/packed_scaled.h"
#include "cc/ops/linear/scaled/scaled_amx_inl.h"
#include "cc/ops/tiles/machine_tiles.h"

namespace pagemill::ops::scaled {

constinit const linear::PackedGemm kAmxInt8Kernels = ScaledAmx<MachineTiles>::kKernels;
constinit const linear::PackedGemm kAmxBf16Kernels = E4m3Amx<MachineTiles>::kKernels;

}  // namespace pagemill::ops::scaled
