// File: cc/ops/linear/bf16_panel.h
// Panels of bf16 weights as both instruction sets of x86-64 that multiply pairs of bf16 read them,
// so that they share packed copies:
//
//   [pairs of elements of k][kPanelRows weight rows][2 elements] bf16
//
// with zeros up to a multiple of kPaddedElements elements. A pair of all rows is two registers of
// AVX-512; 16 pairs of 16 rows are a tile of AMX, whose rows are 128 bytes apart. Compiled for the
// baseline: packing waits for memory.
#ifndef PAGEMILL_CC_OPS_LINEAR_BF16_PANEL_H_
#define PAGEMILL_CC_OPS_LINEAR_BF16_PANEL_H_

#include <cstdint>
#include <string_view>

#include "cc/ops/linear/packed_gemm_kernels.h"

namespace pagemill::ops::linear {

inline constexpr std::string_view kBf16PanelLayout = "bf16 panels of 32, version 1";
inline constexpr int64_t kPaddedElements = 32;
inline constexpr int64_t kPairBytes = 4;
inline constexpr int64_t kPanelPairBytes = kPairBytes * kPanelRows;

// The members of a PackedGemm of these names.
int64_t Bf16PanelBytes(DType dtype, int64_t k);
void PackBf16Panel(const StoredRows& source, int64_t count, uint8_t* panel);

// Row `row` of a panel as floats.
void ReadBf16PanelRow(DType dtype, const uint8_t* panel, int64_t row, int64_t k, float* out);

#if defined(__x86_64__)
extern const PackedGemm kAvx512Bf16Kernels;
extern const PackedGemm kAmxBf16Kernels;
#elif defined(__aarch64__)
extern const PackedGemm kAsimdBf16Kernels;  // with panels of its own
#endif

}  // namespace pagemill::ops::linear

#endif  // PAGEMILL_CC_OPS_LINEAR_BF16_PANEL_H_
