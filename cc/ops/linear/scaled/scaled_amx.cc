// Products with scaled int8 weights in AMX tiles.

// GCC 12 warns of the deliberately undefined registers inside its own intrinsics.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

#include "cc/ops/linear/scaled/packed_scaled.h"
#include "cc/ops/linear/scaled/scaled_amx_inl.h"
#include "cc/ops/tiles/machine_tiles.h"

namespace pagemill::ops::scaled {

constinit const linear::PackedGemm kAmxInt8Kernels = ScaledAmx<MachineTiles>::kKernels;

}  // namespace pagemill::ops::scaled
