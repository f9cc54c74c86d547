// The packed GEMM over the CPU's AMX tiles.
#include "cc/ops/linear/linear_amx_inl.h"
#include "cc/ops/linear/packed_bf16.h"
#include "cc/ops/linear/packed_gemm_kernels.h"
#include "cc/ops/tiles/machine_tiles.h"

namespace pagemill::ops::linear {

constinit const PackedGemm kAmxBf16Kernels = AmxBf16<MachineTiles>::kKernels;

}  // namespace pagemill::ops::linear
