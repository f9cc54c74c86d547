// The kernel sets of AMX, over the machine's tiles.
#include "cc/ops/linear/bf16_panel.h"
#include "cc/ops/linear/block_amx_inl.h"
#include "cc/ops/linear/linear_amx_inl.h"
#include "cc/ops/linear/packed_kernel_set.h"
#include "cc/ops/tiles/machine_tiles.h"

namespace pagemill::ops::linear {

constinit const PackedKernelSet kAmxBf16Kernels = AmxBf16<MachineTiles>::kKernels;
constinit const PackedKernelSet kAmxInt8Kernels =
    AmxBlocks<MachineTiles, &kAvx512VnniKernels, 1>::kKernels;
constinit const PackedKernelSet kAmxInt16Kernels =
    AmxBlocks<MachineTiles, &kAvx512VnniInt16Kernels, 2>::kKernels;

}  // namespace pagemill::ops::linear
