#include "cc/ops/linear/scaled/emulated_scaled.h"
#include "cc/ops/linear/scaled/scaled_amx_inl.h"
#include "cc/ops/tiles/emulated_tiles.h"

namespace pagemill::ops::scaled {

constinit const linear::PackedGemm kEmulatedInt8Kernels = ScaledAmx<EmulatedTiles>::kKernels;

}  // namespace pagemill::ops::scaled
