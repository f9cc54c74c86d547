// File: cc/ops/linear/kernel_table/linear_kernels.h
// The kernels of products with weight matrices, each with its name, priority and what it needs, for
// ops that build their kernel tables from them: `linear`, `grouped_linear`. The reference and
// oneDNN's kernel are not among them.
//
//   struct Table {
//     template <const PackedKernelSet* kKernels, class Panels, SupportsWeights kSupports>
//     void Packed(std::string_view name, int32_t priority, Precision activations);
//     template <const KernelSet* kKernels, SupportsWeights kSupports>
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
#include "cc/ops/linear/bf16_panel.h"
#include "cc/ops/linear/block_panel.h"
#include "cc/ops/linear/kernel_set.h"
#include "cc/ops/linear/packed_kernel_set.h"
#include "cc/ops/op.h"

namespace pagemill::ops::linear {

// Can a kernel multiply weights of `dtype` on this machine?
using SupportsWeights = bool (*)(const device::Capabilities& caps, DType dtype);

inline bool AnyWeights(const device::Capabilities&, DType) { return true; }

#if defined(__x86_64__)
inline bool Avx2Weights(const device::Capabilities& caps, DType) { return caps.cpu.avx2; }
inline bool Avx512Weights(const device::Capabilities& caps, DType) { return caps.cpu.avx512; }
inline bool VnniOnBlocks(const device::Capabilities& caps, DType dtype) {
  return caps.cpu.avx512 && caps.cpu.avx512_vnni && IsBlockFormat(dtype);
}
inline bool AvxVnniOnBlocks(const device::Capabilities& caps, DType dtype) {
  return caps.cpu.avx_vnni && IsBlockFormat(dtype);
}
inline bool Avx2OnBlocks(const device::Capabilities& caps, DType dtype) {
  return caps.cpu.avx2 && IsBlockFormat(dtype);
}
inline bool AmxOnBf16(const device::Capabilities& caps, DType dtype) {
  // linear_amx.cc is compiled for the vectors of all CPUs that have tiles.
  return caps.cpu.amx_bf16 && caps.cpu.avx512_bf16 && caps.cpu.avx512_vnni && dtype == DType::kBF16;
}
inline bool AmxOnBlocks(const device::Capabilities& caps, DType dtype) {
  return caps.cpu.amx_int8 && caps.cpu.avx512_bf16 && VnniOnBlocks(caps, dtype);
}
inline bool Avx512Bf16OnBf16(const device::Capabilities& caps, DType dtype) {
  return caps.cpu.avx512_bf16 && caps.cpu.avx512_vnni && dtype == DType::kBF16;
}
#elif defined(__aarch64__)
inline bool DotprodOnBlocks(const device::Capabilities& caps, DType dtype) {
  return caps.cpu.asimd_dotprod && IsBlockFormat(dtype);
}
inline bool I8mmOnBlocks(const device::Capabilities& caps, DType dtype) {
  return caps.cpu.asimd_i8mm && DotprodOnBlocks(caps, dtype);
}
inline bool AsimdBf16OnBf16(const device::Capabilities& caps, DType dtype) {
  return caps.cpu.asimd_bf16 && caps.cpu.asimd_dotprod && dtype == DType::kBF16;
}
#elif defined(__s390x__)
inline bool VxeOnBlocks(const device::Capabilities& caps, DType dtype) {
  return caps.cpu.vxe && IsBlockFormat(dtype);
}
#endif

// Packed weight layouts: `kPacker` packs for all kernels of the layout.
#if defined(__x86_64__)
struct BlockPanels {
  static constexpr const PackedKernelSet* kPacker = &kAvx512VnniKernels;
  static constexpr std::string_view kLayout = kBlockPanelLayout;
};
struct Bf16Panels {
  static constexpr const PackedKernelSet* kPacker = &kAvx512Bf16Kernels;
  static constexpr std::string_view kLayout = kBf16PanelLayout;
};
#elif defined(__aarch64__)
struct BlockPanels {
  static constexpr const PackedKernelSet* kPacker = &kAsimdDotprodKernels;
  static constexpr std::string_view kLayout = kBlockPanelLayout;
};
struct Bf16Panels {
  static constexpr const PackedKernelSet* kPacker = &kAsimdBf16Kernels;
  static constexpr std::string_view kLayout = "bf16 groups of 16, version 1";
};
#elif defined(__s390x__)
struct BlockPanels {
  static constexpr const PackedKernelSet* kPacker = &kVxeInt8Kernels;
  static constexpr std::string_view kLayout = kBlockPanelLayout;
};
#endif

// Calls table.Packed or table.Stored (weights as stored) for each kernel of this CPU family.
template <class Table>
void VisitKernels(Table& table) {
  [[maybe_unused]] constexpr auto kInt8 = Precision::kInt8Block;
  [[maybe_unused]] constexpr auto kMixed = Precision::kMixedBlock;
  [[maybe_unused]] constexpr auto kInt16 = Precision::kInt16Block;
  [[maybe_unused]] constexpr auto kBf16 = Precision::kBf16;
#if defined(__x86_64__)
  table.template Packed<&kAvx512VnniKernels, BlockPanels, VnniOnBlocks>("avx512_vnni", 40, kInt8);
  table.template Packed<&kAvx512VnniMixedKernels, BlockPanels, VnniOnBlocks>("avx512_vnni_mixed",
                                                                             37, kMixed);
  table.template Packed<&kAmxInt8Kernels, BlockPanels, AmxOnBlocks>("amx_int8", 42, kInt8);
  table.template Packed<&kAmxInt16Kernels, BlockPanels, AmxOnBlocks>("amx_int8_int16", 38, kInt16);
  table.template Packed<&kAmxBf16Kernels, Bf16Panels, AmxOnBf16>("amx_bf16", 38, kBf16);
  table.template Packed<&kAvx512Bf16Kernels, Bf16Panels, Avx512Bf16OnBf16>("avx512_bf16", 36,
                                                                           kBf16);
  table.template Packed<&kAvx512VnniInt16Kernels, BlockPanels, VnniOnBlocks>("avx512_vnni_int16",
                                                                             35, kInt16);
  table.template Packed<&kAvxVnniInt8Kernels, BlockPanels, AvxVnniOnBlocks>("avx_vnni_int8", 34,
                                                                            kInt8);
  table.template Packed<&kAvx2Int8Kernels, BlockPanels, Avx2OnBlocks>("avx2_int8", 33, kInt8);
  table.template Packed<&kAvxVnniMixedKernels, BlockPanels, AvxVnniOnBlocks>("avx_vnni_mixed", 32,
                                                                             kMixed);
  table.template Packed<&kAvx2MixedKernels, BlockPanels, Avx2OnBlocks>("avx2_int8_mixed", 31,
                                                                       kMixed);
  table.template Packed<&kAvxVnniInt16Kernels, BlockPanels, AvxVnniOnBlocks>("avx_vnni_int16", 26,
                                                                             kInt16);
  table.template Packed<&kAvx2Int16Kernels, BlockPanels, Avx2OnBlocks>("avx2_int16", 25, kInt16);
  table.template Stored<&kAvx512Kernels, Avx512Weights>("avx512", 30);
  table.template Stored<&kAvx2Kernels, Avx2Weights>("avx2", 20);
#elif defined(__aarch64__)
  table.template Packed<&kAsimdI8mmKernels, BlockPanels, I8mmOnBlocks>("asimd_i8mm", 42, kInt8);
  table.template Packed<&kAsimdI8mmInt16Kernels, BlockPanels, I8mmOnBlocks>("asimd_i8mm_int16", 37,
                                                                            kInt16);
  table.template Packed<&kAsimdDotprodKernels, BlockPanels, DotprodOnBlocks>("asimd_dotprod", 40,
                                                                             kInt8);
  table.template Packed<&kAsimdBf16Kernels, Bf16Panels, AsimdBf16OnBf16>("asimd_bf16", 36, kBf16);
  table.template Packed<&kAsimdDotprodInt16Kernels, BlockPanels, DotprodOnBlocks>(
      "asimd_dotprod_int16", 35, kInt16);
#elif defined(__s390x__)
  table.template Packed<&kVxeInt8Kernels, BlockPanels, VxeOnBlocks>("vxe_int8", 40, kInt8);
  table.template Packed<&kVxeInt16Kernels, BlockPanels, VxeOnBlocks>("vxe_int16", 35, kInt16);
#endif
  table.template Stored<&kPortableKernels, AnyWeights>("portable", 10);
}

}  // namespace pagemill::ops::linear

#endif  // PAGEMILL_CC_OPS_LINEAR_KERNEL_TABLE_LINEAR_KERNELS_H_
