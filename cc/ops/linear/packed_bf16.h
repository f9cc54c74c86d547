// File: cc/ops/linear/packed_bf16.h
// Slices of bf16 weights for AVX512-BF16 and AMX, which read the same layout and share packed
// copies:
//
//   [pairs of elements of k][kSliceRows weight rows][2 elements] bf16
//
// with zeros up to a multiple of kPaddedElements elements. A pair of all rows is two AVX-512
// registers; 16 pairs of 16 rows are an AMX tile with rows 128 bytes apart. Compiled for the
// baseline, since packing is bound by memory.
#ifndef PAGEMILL_CC_OPS_LINEAR_PACKED_BF16_H_
#define PAGEMILL_CC_OPS_LINEAR_PACKED_BF16_H_

#include <cstdint>
#include <string_view>

#include "cc/ops/linear/packed_gemm_kernels.h"

namespace pagemill::ops::linear {

inline constexpr std::string_view kPackedBf16Layout = "bf16 in slices of 32 rows, version 1";
inline constexpr int64_t kPaddedElements = 32;
inline constexpr int64_t kPairBytes = 4;
inline constexpr int64_t kSlicePairBytes = kPairBytes * kSliceRows;

// Members of a PackedGemm.
int64_t Bf16SliceBytes(DType dtype, int64_t k);
void PackBf16Slice(const StoredRows& source, int64_t count, uint8_t* slice);

// Reads row `row` of a slice as floats.
void ReadPackedBf16Row(DType dtype, const uint8_t* slice, int64_t row, int64_t k, float* out);

#if defined(__x86_64__)
extern const PackedGemm kAvx512Bf16Kernels;
extern const PackedGemm kAmxBf16Kernels;
#elif defined(__aarch64__)
extern const PackedGemm kAsimdBf16Kernels;  // with its own slice layout
#endif

}  // namespace pagemill::ops::linear

#endif  // PAGEMILL_CC_OPS_LINEAR_PACKED_BF16_H_
