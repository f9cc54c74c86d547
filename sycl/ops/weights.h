// File: sycl/ops/weights.h
// Elements of rows of weights, as stored: floats, blocks of the GGUF formats, whose layouts are in
// cc/ops/block_format/block_layout.h, 8-bit values with scales, and packed integers
// (sycl/ops/quantized_weights.h). Values are those of the CPU's decoders, bit for bit. Kernel text
// only.
//
//   WithWeightRow(p.w, matrix, row, [&](const auto& w) { sum += w.At(i) * x[i]; });
#ifndef PAGEMILL_SYCL_OPS_WEIGHTS_H_
#define PAGEMILL_SYCL_OPS_WEIGHTS_H_

#include "cc/ops/block_format/block_layout.h"
#include "sycl/ops/kernel.h"
#include "sycl/ops/quantized_weights.h"
#include "sycl/ops/weight_matrices.h"

namespace pagemill::sycl {

template <typename T>
struct PlainRow {
  const T* data;

  float At(int64_t i) const { return Load(data + i); }
};

inline float HalfAt(const uint8_t* bytes) { return F16ToFloat(ops::LoadLe16(bytes)); }

// The block of element i; its number in the block is i % layout.elements.
inline const uint8_t* BlockOf(const ops::BlockLayout& layout, const char* row, int64_t i) {
  return reinterpret_cast<const uint8_t*>(row) + i / layout.elements * layout.bytes;
}

// Element j of 32: low nibbles of 16 bytes, then high ones.
inline int32_t NibbleAt(const uint8_t* bytes, int32_t j) {
  return j < 16 ? bytes[j] & 15 : bytes[j - 16] >> 4;
}

inline float Q4_0At(const char* row, int64_t i) {
  const uint8_t* block = BlockOf(ops::kQ4_0Layout, row, i);
  const int32_t q = NibbleAt(block + ops::kQ4_0Layout.quants, i % 32);
  return HalfAt(block) * static_cast<float>(q - 8);
}

inline float Q4_1At(const char* row, int64_t i) {
  const uint8_t* block = BlockOf(ops::kQ4_1Layout, row, i);
  const int32_t q = NibbleAt(block + ops::kQ4_1Layout.quants, i % 32);
  return HalfAt(block) * static_cast<float>(q) + HalfAt(block + 2);
}

inline float Q5_0At(const char* row, int64_t i) {
  const uint8_t* block = BlockOf(ops::kQ5_0Layout, row, i);
  const int32_t fifth = ops::LoadLe32(block + ops::kQ5_0Layout.high_bits) >> i % 32 & 1;
  const int32_t q = NibbleAt(block + ops::kQ5_0Layout.quants, i % 32) | fifth << 4;
  return HalfAt(block) * static_cast<float>(q - 16);
}

inline float Q8_0At(const char* row, int64_t i) {
  const uint8_t* block = BlockOf(ops::kQ8_0Layout, row, i);
  const auto q = static_cast<int8_t>(block[ops::kQ8_0Layout.quants + i % 32]);
  return HalfAt(block) * static_cast<float>(q);
}

// d * scale * q - dmin * minimum, of Q4_K and Q5_K: sub-block s has scale and minimum of 6 bits.
inline float ScaledK(const uint8_t* block, int32_t s, int32_t q) {
  const uint8_t* packed = block + ops::kQ45KScalesOffset;
  int32_t scale = packed[s % 4] & 63, minimum = packed[4 + s % 4] & 63;
  if (s >= 4) {
    scale = (packed[4 + s] & 15) | packed[s - 4] >> 6 << 4;
    minimum = packed[4 + s] >> 4 | packed[s] >> 6 << 4;
  }
  return HalfAt(block) * static_cast<float>(scale) * static_cast<float>(q) -
         HalfAt(block + 2) * static_cast<float>(minimum);
}

// The nibble of element j of sub-block s: two sub-blocks share 32 bytes.
inline int32_t NibbleOfK(const uint8_t* quants, int32_t s, int32_t j) {
  return quants[s / 2 * 32 + j] >> s % 2 * 4 & 15;
}

inline float Q4_KAt(const char* row, int64_t i) {
  const uint8_t* block = BlockOf(ops::kQ4_KLayout, row, i);
  const int32_t s = i % 256 / 32, j = i % 32;
  return ScaledK(block, s, NibbleOfK(block + ops::kQ4_KLayout.quants, s, j));
}

inline float Q5_KAt(const char* row, int64_t i) {
  const uint8_t* block = BlockOf(ops::kQ5_KLayout, row, i);
  const int32_t s = i % 256 / 32, j = i % 32;
  const int32_t fifth = block[ops::kQ5_KLayout.high_bits + j] >> s & 1;
  return ScaledK(block, s, NibbleOfK(block + ops::kQ5_KLayout.quants, s, j) | fifth << 4);
}

inline float Q6_KAt(const char* row, int64_t i) {
  const uint8_t* block = BlockOf(ops::kQ6_KLayout, row, i);
  const int32_t half = i % 256 / 128, s = i % 128 / 32, j = i % 32;
  const int32_t low = block[64 * half + 32 * (s % 2) + j] >> s / 2 * 4 & 15;
  const int32_t high = block[ops::kQ6_KLayout.high_bits + 32 * half + j] >> 2 * s & 3;
  const auto scale =
      static_cast<int8_t>(block[ops::kQ6KScalesOffset + 8 * half + 2 * s + j / 16]);
  return HalfAt(block + ops::kQ6KScaleOffset) * static_cast<float>(scale) *
         static_cast<float>((low | high << 4) - 32);
}

// Not of floats. The format is chosen for each element: a loop for each format would double the
// time of compiling a module.
struct QuantizedRow {
  const WeightMatrices& weights;
  int64_t matrix, row;
  const char* data;

  float At(int64_t i) const {
    switch (weights.type) {
      case ElementType::kI8:
      case ElementType::kF8E4M3:
        return ScaledRow(weights.type, data, weights.scales, matrix, row).At(i);
      case ElementType::kU4:
      case ElementType::kU8:
        return PackedRow(weights.type, weights.packed, matrix, row).At(i);
      case ElementType::kQ4_0:
        return Q4_0At(data, i);
      case ElementType::kQ4_1:
        return Q4_1At(data, i);
      case ElementType::kQ5_0:
        return Q5_0At(data, i);
      case ElementType::kQ8_0:
        return Q8_0At(data, i);
      case ElementType::kQ4_K:
        return Q4_KAt(data, i);
      case ElementType::kQ5_K:
        return Q5_KAt(data, i);
      default:
        return Q6_KAt(data, i);
    }
  }
};

// Calls use(row) with a row of a matrix.
template <typename Use>
inline void WithWeightRow(const WeightMatrices& w, int64_t matrix, int64_t row, const Use& use) {
  const char* data = w.matrices.Row<const char>(matrix) + row * w.row_bytes;
  switch (w.type) {
    case ElementType::kF32:
      return use(PlainRow<float>{reinterpret_cast<const float*>(data)});
    case ElementType::kBF16:
      return use(PlainRow<Bf16>{reinterpret_cast<const Bf16*>(data)});
    case ElementType::kF16:
      return use(PlainRow<F16>{reinterpret_cast<const F16*>(data)});
    default:
      return use(QuantizedRow{w, matrix, row, data});
  }
}

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_WEIGHTS_H_
