// File: cc/ops/linear/scaled/packed_scaled.h
// Slices of 8-bit weights, the layout that all kernels of scaled weights read:
//
//   [quads of elements of k][kSliceRows weight rows][4 bytes]
//
// with zeros up to a multiple of kPaddedElements elements. A register of 64 bytes is a quad of 16
// rows. The elements of a quad are in the order 0, 2, 1, 3, so that the lower bytes of 16-bit lanes
// are two neighbours, the upper bytes the next two: the pairs that VDPBF16PS multiplies. Elements
// of i8 are stored plus 128, since VPDPBUSD takes one unsigned operand.
//
// Chunks of x have their elements in the same order.
#ifndef PAGEMILL_CC_OPS_LINEAR_SCALED_PACKED_SCALED_H_
#define PAGEMILL_CC_OPS_LINEAR_SCALED_PACKED_SCALED_H_

#include <cstdint>
#include <string_view>

#include "cc/ops/linear/packed_gemm_kernels.h"
#include "cc/tensor/dtype.h"

namespace pagemill::ops::scaled {

using linear::kSliceRows;

inline constexpr std::string_view kPackedScaledLayout = "scaled in slices of 32 rows, version 1";
inline constexpr int64_t kPaddedElements = 64;  // a row of an AMX tile
inline constexpr int64_t kQuadBytes = 4;
inline constexpr int64_t kSliceQuadBytes = kQuadBytes * kSliceRows;
inline constexpr int kQuadOrder[4] = {0, 2, 1, 3};  // the element of each byte of a quad
inline constexpr uint8_t kInt8Offset = 128;
// Rows of x with smaller |x| count as 0, since the inverse of their scale may overflow.
inline constexpr float kSmallestRow = 0x1p-100f;

// Members of a PackedGemm.
int64_t ScaledSliceBytes(DType dtype, int64_t k);
void PackScaledSlice(const linear::StoredRows& source, int64_t count, uint8_t* slice);

extern const linear::PackedGemm kFloatPortable;
#if defined(__x86_64__)
extern const linear::PackedGemm kFloatAvx2;
extern const linear::PackedGemm kFloatAvx512;
extern const linear::PackedGemm kAvx512Bf16Kernels;  // f8_e4m3
extern const linear::PackedGemm kAvx512VnniKernels;  // i8, x of 8 bits
extern const linear::PackedGemm kAmxInt8Kernels;     // the same
// f8_e4m3 with scales of whole rows, or of blocks of a multiple of 32 columns.
extern const linear::PackedGemm kAmxBf16Kernels;
#elif defined(__aarch64__)
extern const linear::PackedGemm kAsimdDotprodKernels;  // i8, x of 8 bits
#endif

}  // namespace pagemill::ops::scaled

#endif  // PAGEMILL_CC_OPS_LINEAR_SCALED_PACKED_SCALED_H_
