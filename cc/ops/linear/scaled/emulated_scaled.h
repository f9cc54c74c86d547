// File: cc/ops/linear/scaled/emulated_scaled.h
// The AMX packed GEMMs over emulated tiles. They need AVX-512 with VBMI, VNNI and BF16, but no AMX.
// Test code only.
#ifndef PAGEMILL_CC_OPS_LINEAR_SCALED_EMULATED_SCALED_H_
#define PAGEMILL_CC_OPS_LINEAR_SCALED_EMULATED_SCALED_H_

#include "cc/ops/linear/packed_gemm_kernels.h"

namespace pagemill::ops::scaled {

#if defined(__x86_64__)
extern const linear::PackedGemm kEmulatedInt8Kernels;
extern const linear::PackedGemm kEmulatedE4m3Kernels;
#endif

}  // namespace pagemill::ops::scaled

#endif  // PAGEMILL_CC_OPS_LINEAR_SCALED_EMULATED_SCALED_H_
