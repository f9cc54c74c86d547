#include "cc/ops/linear/block_amx_inl.h"
#include "cc/ops/linear/emulated_blocks.h"
#include "cc/ops/tiles/emulated_tiles.h"

namespace pagemill::ops::linear {

constinit const PackedGemm kEmulatedInt8Kernels =
    AmxBlocks<EmulatedTiles, &kAvx512VnniKernels, 1>::kKernels;
constinit const PackedGemm kEmulatedInt16Kernels =
    AmxBlocks<EmulatedTiles, &kAvx512VnniInt16Kernels, 2>::kKernels;

}  // namespace pagemill::ops::linear
