// File: cc/ops/paged_attention/emulated_attention.h
// The AMX kernels over emulated tiles. They need AVX-512 with BF16, VBMI and VNNI, but no AMX.
// Test code only.
#ifndef PAGEMILL_CC_OPS_PAGED_ATTENTION_EMULATED_ATTENTION_H_
#define PAGEMILL_CC_OPS_PAGED_ATTENTION_EMULATED_ATTENTION_H_

#include "cc/ops/paged_attention/attention_kernel.h"

namespace pagemill::ops {

#if defined(__x86_64__)
extern const AttentionKernels kEmulatedAttentionAmx;
#endif

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_PAGED_ATTENTION_EMULATED_ATTENTION_H_
