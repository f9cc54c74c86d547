// File: cc/ops/linear/emulated_blocks.h
// The AMX packed GEMMs for block formats over emulated tiles. They need AVX-512 with VNNI and
// BF16, but no AMX. Test code only.
#ifndef PAGEMILL_CC_OPS_LINEAR_EMULATED_BLOCKS_H_
#define PAGEMILL_CC_OPS_LINEAR_EMULATED_BLOCKS_H_

#include "cc/ops/linear/packed_gemm_kernels.h"

namespace pagemill::ops::linear {

#if defined(__x86_64__)
extern const PackedGemm kEmulatedInt8Kernels;
extern const PackedGemm kEmulatedInt16Kernels;
#endif

}  // namespace pagemill::ops::linear

#endif  // PAGEMILL_CC_OPS_LINEAR_EMULATED_BLOCKS_H_
