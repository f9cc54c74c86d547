// File: cc/ops/linear/kernel_table/linear_kernels.h
// The GEMM kernels with name, priority and requirements, from which `linear` and `grouped_linear`
// build their kernel tables. The reference and oneDNN's kernel are not included.
//
//   struct Table {
//     template <const PackedGemm* kKernels, class Slices, SupportsWeights kSupports>
//     void Packed(std::string_view name, int32_t priority, Precision activations);
//     template <const PackedGemm* kKernels, SupportsWeights kSupports>
//     void Stored(std::string_view name, int32_t priority);
//   };
//   Table table;
//   VisitKernels(table);
#ifndef PAGEMILL_CC_OPS_LINEAR_KERNEL_TABLE_LINEAR_KERNELS_H_
#define PAGEMILL_CC_OPS_LINEAR_KERNEL_TABLE_LINEAR_KERNELS_H_

#include <cstdint>
#include <string_view>

#include "cc/device/capabilities.h"
#include "cc/ops/block_format/block_format.h"
#include "cc/ops/linear/linear.h"
#include "cc/ops/linear/packed_bf16.h"
#include "cc/ops/linear/packed_blocks.h"
#include "cc/ops/linear/packed_gemm_kernels.h"
#include "cc/ops/linear/scaled/packed_scaled.h"
#include "cc/ops/op.h"
#include "cc/ops/quantized/packed_integers.h"
#include "cc/ops/quantized/quantized.h"
#include "cc/tensor/tensor_view.h"

namespace pagemill::ops::linear {

// True if a kernel can multiply such weights, matrices or stacks of them, on this machine.
using SupportsWeights = bool (*)(const device::Capabilities& caps, const TensorView& weight);

// True for weights that kernels multiply as blocks, or as bf16: stored that way, or packed integers
// that are converted.
inline bool OfBlocks(const TensorView& w) { return IsBlockFormat(BlockDTypeOf(w)); }
inline bool OfBf16(const TensorView& w) { return BlockDTypeOf(w) == DType::kBF16; }
// True for int8 weights with a scale per row whose sums fit into int32.
inline bool OfInt8Rows(const TensorView& w) {
  const int64_t k = w.shape[static_cast<size_t>(w.rank - 1)];
  return IsScaled(w) && w.dtype == DType::kI8 && k <= kMaxInt8K &&
         w.parts->format.block_columns >= k;
}
inline bool OfFp8(const TensorView& w) { return IsScaled(w) && w.dtype == DType::kF8E4M3; }

inline bool AnyWeights(const device::Capabilities&, const TensorView&) { return true; }
inline bool AnyScaled(const device::Capabilities&, const TensorView& w) { return IsScaled(w); }

#if defined(__x86_64__)
inline bool Avx2Weights(const device::Capabilities& caps, const TensorView&) {
  return caps.cpu.avx2;
}
inline bool Avx512Weights(const device::Capabilities& caps, const TensorView&) {
  return caps.cpu.avx512;
}
inline bool VnniOnBlocks(const device::Capabilities& caps, const TensorView& w) {
  return caps.cpu.avx512 && caps.cpu.avx512_vnni && OfBlocks(w);
}
inline bool AvxVnniOnBlocks(const device::Capabilities& caps, const TensorView& w) {
  return caps.cpu.avx_vnni && OfBlocks(w);
}
inline bool Avx2OnBlocks(const device::Capabilities& caps, const TensorView& w) {
  return caps.cpu.avx2 && OfBlocks(w);
}
inline bool AmxOnBf16(const device::Capabilities& caps, const TensorView& w) {
  // linear_amx.cc is compiled for the vector instructions of all CPUs with AMX.
  return caps.cpu.amx_bf16 && caps.cpu.avx512_bf16 && caps.cpu.avx512_vnni && OfBf16(w);
}
inline bool VnniOnInt8(const device::Capabilities& caps, const TensorView& w) {
  return caps.cpu.avx512 && caps.cpu.avx512_vnni && OfInt8Rows(w);
}
inline bool AmxOnInt8(const device::Capabilities& caps, const TensorView& w) {
  return caps.cpu.amx_int8 && caps.cpu.avx512_bf16 && VnniOnInt8(caps, w);
}
inline bool Avx512Bf16OnFp8(const device::Capabilities& caps, const TensorView& w) {
  return caps.cpu.avx512_bf16 && caps.cpu.avx512_vnni && OfFp8(w);
}
inline bool AmxOnFp8(const device::Capabilities& caps, const TensorView& w) {
  // Blocks of scales do not cut tiles.
  return caps.cpu.amx_bf16 && caps.cpu.avx512_vbmi && Avx512Bf16OnFp8(caps, w) &&
         (w.parts->format.block_columns % 32 == 0 ||
          w.parts->format.block_columns >= w.shape[static_cast<size_t>(w.rank - 1)]);
}
inline bool Avx512OnScaled(const device::Capabilities& caps, const TensorView& w) {
  return caps.cpu.avx512 && IsScaled(w);
}
inline bool Avx2OnScaled(const device::Capabilities& caps, const TensorView& w) {
  return caps.cpu.avx2 && IsScaled(w);
}
inline bool Avx512Bf16OnBf16(const device::Capabilities& caps, const TensorView& w) {
  return caps.cpu.avx512_bf16 && caps.cpu.avx512_vnni && OfBf16(w);
}
#elif defined(__aarch64__)
inline bool DotprodOnBlocks(const device::Capabilities& caps, const TensorView& w) {
  return caps.cpu.asimd_dotprod && OfBlocks(w);
}
inline bool I8mmOnBlocks(const device::Capabilities& caps, const TensorView& w) {
  return caps.cpu.asimd_i8mm && DotprodOnBlocks(caps, w);
}
inline bool DotprodOnInt8(const device::Capabilities& caps, const TensorView& w) {
  return caps.cpu.asimd_dotprod && OfInt8Rows(w);
}
inline bool AsimdBf16OnBf16(const device::Capabilities& caps, const TensorView& w) {
  return caps.cpu.asimd_bf16 && caps.cpu.asimd_dotprod && OfBf16(w);
}
#elif defined(__s390x__)
inline bool VxeOnBlocks(const device::Capabilities& caps, const TensorView& w) {
  return caps.cpu.vxe && OfBlocks(w);
}
#endif

// Packed weight layouts: the functions of `kPacker` serve all kernels of a layout.
struct PackedScaled {
  static constexpr const PackedGemm* kPacker = &scaled::kFloatPortable;
  static constexpr std::string_view kLayout = scaled::kPackedScaledLayout;
};
#if defined(__x86_64__)
struct PackedBlocks {
  static constexpr const PackedGemm* kPacker = &kAvx512VnniKernels;
  static constexpr std::string_view kLayout = kPackedBlocksLayout;
};
struct PackedBf16 {
  static constexpr const PackedGemm* kPacker = &kAvx512Bf16Kernels;
  static constexpr std::string_view kLayout = kPackedBf16Layout;
};
#elif defined(__aarch64__)
struct PackedBlocks {
  static constexpr const PackedGemm* kPacker = &kAsimdDotprodKernels;
  static constexpr std::string_view kLayout = kPackedBlocksLayout;
};
struct PackedBf16 {
  static constexpr const PackedGemm* kPacker = &kAsimdBf16Kernels;
  static constexpr std::string_view kLayout = "bf16 groups of 16, version 1";
};
#elif defined(__s390x__)
struct PackedBlocks {
  static constexpr const PackedGemm* kPacker = &kVxeInt8Kernels;
  static constexpr std::string_view kLayout = kPackedBlocksLayout;
};
#endif

// Calls table.Packed or table.Stored for each kernel of this CPU family. Kernels of table.Stored
// read any unscaled weight row by row: as stored, or from BlockRows() of packed integers.
template <class Table>
void VisitKernels(Table& table) {
  constexpr auto kF32 = Precision::kF32;
  [[maybe_unused]] constexpr auto kInt8 = Precision::kInt8Block;
  [[maybe_unused]] constexpr auto kMixed = Precision::kMixedBlock;
  [[maybe_unused]] constexpr auto kInt16 = Precision::kInt16Block;
  [[maybe_unused]] constexpr auto kBf16 = Precision::kBf16;
#if defined(__x86_64__)
  table.template Packed<&kAvx512VnniKernels, PackedBlocks, VnniOnBlocks>("avx512_vnni", 40, kInt8);
  table.template Packed<&kAvx512VnniMixedKernels, PackedBlocks, VnniOnBlocks>("avx512_vnni_mixed",
                                                                              37, kMixed);
  table.template Packed<&kAmxBf16Kernels, PackedBf16, AmxOnBf16>("amx_bf16", 38, kBf16);
  table.template Packed<&kAvx512Bf16Kernels, PackedBf16, Avx512Bf16OnBf16>("avx512_bf16", 36,
                                                                           kBf16);
  table.template Packed<&kAvx512VnniInt16Kernels, PackedBlocks, VnniOnBlocks>("avx512_vnni_int16",
                                                                              35, kInt16);
  table.template Packed<&kAvxVnniInt8Kernels, PackedBlocks, AvxVnniOnBlocks>("avx_vnni_int8", 34,
                                                                             kInt8);
  table.template Packed<&kAvx2Int8Kernels, PackedBlocks, Avx2OnBlocks>("avx2_int8", 33, kInt8);
  table.template Packed<&kAvxVnniMixedKernels, PackedBlocks, AvxVnniOnBlocks>("avx_vnni_mixed", 32,
                                                                              kMixed);
  table.template Packed<&kAvx2MixedKernels, PackedBlocks, Avx2OnBlocks>("avx2_int8_mixed", 31,
                                                                        kMixed);
  table.template Stored<&kFloatAvx512, Avx512Weights>("avx512", 30);
  table.template Stored<&kFloatAvx2, Avx2Weights>("avx2", 20);
  table.template Packed<&scaled::kAmxInt8Kernels, PackedScaled, AmxOnInt8>("amx_int8", 42, kInt8);
  table.template Packed<&scaled::kAvx512VnniKernels, PackedScaled, VnniOnInt8>("avx512_vnni", 40,
                                                                               kInt8);
  table.template Packed<&scaled::kAmxBf16Kernels, PackedScaled, AmxOnFp8>("amx_bf16", 38, kBf16);
  table.template Packed<&scaled::kAvx512Bf16Kernels, PackedScaled, Avx512Bf16OnFp8>("avx512_bf16",
                                                                                    36, kBf16);
  table.template Packed<&scaled::kFloatAvx512, PackedScaled, Avx512OnScaled>("avx512", 30, kF32);
  table.template Packed<&scaled::kFloatAvx2, PackedScaled, Avx2OnScaled>("avx2", 20, kF32);
#elif defined(__aarch64__)
  table.template Packed<&kAsimdI8mmKernels, PackedBlocks, I8mmOnBlocks>("asimd_i8mm", 42, kInt8);
  table.template Packed<&kAsimdI8mmInt16Kernels, PackedBlocks, I8mmOnBlocks>("asimd_i8mm_int16", 37,
                                                                             kInt16);
  table.template Packed<&kAsimdDotprodKernels, PackedBlocks, DotprodOnBlocks>("asimd_dotprod", 40,
                                                                              kInt8);
  table.template Packed<&kAsimdBf16Kernels, PackedBf16, AsimdBf16OnBf16>("asimd_bf16", 36, kBf16);
  table.template Packed<&kAsimdDotprodInt16Kernels, PackedBlocks, DotprodOnBlocks>(
      "asimd_dotprod_int16", 35, kInt16);
  table.template Packed<&scaled::kAsimdDotprodKernels, PackedScaled, DotprodOnInt8>("asimd_dotprod",
                                                                                    40, kInt8);
#elif defined(__s390x__)
  table.template Packed<&kVxeInt8Kernels, PackedBlocks, VxeOnBlocks>("vxe_int8", 40, kInt8);
  table.template Packed<&kVxeInt16Kernels, PackedBlocks, VxeOnBlocks>("vxe_int16", 35, kInt16);
#endif
  table.template Stored<&kFloatPortable, AnyWeights>("portable", 10);
  table.template Packed<&scaled::kFloatPortable, PackedScaled, AnyScaled>("portable", 10, kF32);
}

}  // namespace pagemill::ops::linear

#endif  // PAGEMILL_CC_OPS_LINEAR_KERNEL_TABLE_LINEAR_KERNELS_H_
