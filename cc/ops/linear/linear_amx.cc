// The packed GEMMs over the CPU's AMX tiles.
#include "cc/ops/linear/block_amx_inl.h"
#include "cc/ops/linear/linear_amx_inl.h"
#include "cc/ops/linear/packed_bf16.h"
#include "cc/ops/linear/packed_gemm_kernels.h"
#include "cc/ops/tiles/machine_tiles.h"

namespace pagemill::ops::linear {

constinit const PackedGemm kAmxBf16Kernels = AmxBf16<MachineTiles>::kKernels;
constinit const PackedGemm kAmxInt8Kernels =
    AmxBlocks<MachineTiles, &kAvx512VnniKernels, 1>::kKernels;
constinit const PackedGemm kAmxInt16Kernels =
    AmxBlocks<MachineTiles, &kAvx512VnniInt16Kernels, 2>::kKernels;

}  // namespace pagemill::ops::linear
