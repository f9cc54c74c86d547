// GCC 12 warns of the deliberately undefined registers inside its own intrinsics.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

#include "cc/ops/linear/scaled/e4m3_amx_inl.h"
#include "cc/ops/linear/scaled/emulated_scaled.h"
#include "cc/ops/linear/scaled/scaled_amx_inl.h"
#include "cc/ops/tiles/emulated_tiles.h"

namespace pagemill::ops::scaled {

constinit const linear::PackedGemm kEmulatedInt8Kernels = ScaledAmx<EmulatedTiles>::kKernels;
constinit const linear::PackedGemm kEmulatedE4m3Kernels = E4m3Amx<EmulatedTiles>::kKernels;

}  // namespace pagemill::ops::scaled
