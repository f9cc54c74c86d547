// File: cuda/ops/linear/weights.h
// Weights as checkpoints store them, or as they are uploaded (converted_weights.h), for kernels:
// rows of a plain or block format, and quantized weights with parts (cc/tensor/quantized.h). A
// kernel is a template of the type that reads them.
//
//   template <typename W>
//   PAGEMILL_KERNEL AddUp(W weights, ...) {
//     const auto row = weights.At(/*matrix=*/0, /*row=*/7);
//     float w[kWeightsAtOnce];
//     row.Load(/*first=*/64, /*count=*/8, w);  // w[i] * row.Factor() is column 64 + i
//     ...
//   }
//   ...
//   WithWeights(view, [&](const auto& weights) {
//     Launch(stream, shape, AddUp<std::decay_t<decltype(weights)>>, weights, ...);
//   });
//
// `first` is a multiple of 8; `count` is 8, or less at the end of a row: what is beyond it is 0.
// Values are those of ReadWeightRow() (cc/ops/quantized/quantized.h). A column whose group does not
// exist is NaN. Where formats lie in rows, `row.bytes()` is where one begins, and
// weights.BytesOfRow(columns) is its length.
//
// Weights with kHasChunkScales whose row.HasChunkScales() are read in parts, so that lanes share
// what a chunk of columns has in common:
//
//   const ChunkOfSpan chunk = {span, i};                // chunk kSpanChunks * span + i
//   const auto part = row.LoadPart(chunk, eighth);      // columns 8 * eighth to + 7 of it
//   const auto stored = row.StoredOf(part);             // called by the whole warp
//   const auto stored_scale = row.LoadScale(chunk);
//   row.Decode(stored, chunk, eighth, row.ScaleOf(stored_scale, chunk), w);
//
// With kHasQuads and row.HasQuads(), row.LoadQuad() has the parts of four rows.
#ifndef PAGEMILL_CUDA_OPS_LINEAR_WEIGHTS_H_
#define PAGEMILL_CUDA_OPS_LINEAR_WEIGHTS_H_

#include <algorithm>
#include <cstdint>

#include "cc/base/status.h"
#include "cc/ops/block_format/block_layout.h"
#include "cc/ops/quantized/quantized.h"
#include "cc/tensor/dtype.h"
#include "cc/tensor/quantized.h"
#include "cc/tensor/tensor_view.h"
#include "cuda/gpu_vendor.h"
#include "cuda/ops/linear/converted_weights.h"
#include "cuda/ops/linear/packed_weights.h"
#include "cuda/ops/linear/quotient.h"
#include "cuda/ops/linear/weight_row.h"

namespace pagemill::gpu {

// Rows of f32, bf16, f16 or a block format. kIsAligned: rows are at multiples of kBlockAlignment.
template <DType kFormat, bool kIsAligned = false>
struct StoredWeights {
  static constexpr bool kIsOfBlocks = ops::LayoutOf(kFormat).elements > 1;
  static constexpr bool kLiesInRows = true;  // bytes that follow each other are of one row
  static constexpr bool kHasFactors = false;
  static constexpr bool kHasShapes = kIsOfBlocks && !kIsAligned;  // see WithShapedWeights()
  static constexpr bool kDecodesSimply = false;
  static constexpr bool kHasChunkScales = kIsOfBlocks && kIsAligned;
  static constexpr bool kHasQuads = false;
  static constexpr int kAlignment = kIsAligned ? kBlockAlignment<kFormat> : 1;

  const uint8_t* data;
  int64_t row_bytes, matrix_bytes;

  static StoredWeights Of(const TensorView& w) {
    const int64_t row_bytes =
        w.rank == 2 ? w.row_stride_bytes : RowBytes(w.dtype, w.shape[2]);
    return {static_cast<const uint8_t*>(w.data), row_bytes, w.rank == 2 ? 0 : w.row_stride_bytes};
  }

  bool AreAligned() const {
    const uint64_t bits = reinterpret_cast<uintptr_t>(data) | static_cast<uint64_t>(row_bytes) |
                          static_cast<uint64_t>(matrix_bytes);
    return bits % kBlockAlignment<kFormat> == 0;
  }
  StoredWeights<kFormat, true> Aligned() const { return {data, row_bytes, matrix_bytes}; }

  struct Row {
    using Reader = BlockReader<kFormat, kAlignment>;
    const uint8_t* at;

    PAGEMILL_DEVICE void Load(int64_t first, int count, float (&to)[kWeightsAtOnce]) const {
      LoadWeights<kFormat, kAlignment>(at, first, count, to);
    }
    PAGEMILL_DEVICE float Factor() const { return 1; }
    PAGEMILL_DEVICE const uint8_t* bytes() const { return at; }

    PAGEMILL_DEVICE bool HasChunkScales() const { return true; }
    PAGEMILL_DEVICE bool HasQuads() const { return false; }
    PAGEMILL_DEVICE auto LoadStored(const ChunkOfSpan& chunk, unsigned eighth) const {
      return Reader::LoadStored(Reader::BlockOf(at, chunk), Reader::InBlock(chunk), eighth);
    }
    PAGEMILL_DEVICE auto LoadPart(const ChunkOfSpan& chunk, unsigned eighth) const {
      return LoadStored(chunk, eighth);
    }
    template <typename Part>
    PAGEMILL_DEVICE static Part StoredOf(const Part& part) {
      return part;
    }
    PAGEMILL_DEVICE auto LoadScale(const ChunkOfSpan& chunk) const {
      return Reader::LoadScale(Reader::BlockOf(at, chunk), Reader::InBlock(chunk));
    }
    template <typename StoredScale>
    PAGEMILL_DEVICE ChunkScale ScaleOf(const StoredScale& scale, const ChunkOfSpan& chunk) const {
      return Reader::ScaleOf(scale, Reader::InBlock(chunk));
    }
    template <typename Stored>
    PAGEMILL_DEVICE void Decode(const Stored& stored, const ChunkOfSpan& chunk, unsigned eighth,
                                const ChunkScale& scale, float (&to)[kWeightsAtOnce]) const {
      Reader::Decode(stored, Reader::InBlock(chunk), eighth, scale, to);
    }
  };

  PAGEMILL_DEVICE Row At(int64_t matrix, int64_t row) const {
    return {data + matrix * matrix_bytes + row * row_bytes};
  }
  PAGEMILL_DEVICE int64_t BytesOfRow(int64_t) const { return row_bytes; }
};

// What is known of scales when a kernel is compiled: they are of whole rows, or of blocks whose
// columns are a multiple of kWeightsAtOnce. With either, rows are at multiples of 8 bytes.
enum class ScaleShape { kAny, kRows, kBlocks };

// Elements of 8 bits, i8 or f8_e4m3, with scales of blocks. Where a block has whole rows, its scale
// is the factor.
template <DType kFormat, ScaleShape kShape = ScaleShape::kAny>
struct ScaledWeights {
  static constexpr bool kLiesInRows = true;
  static constexpr bool kHasFactors = kShape != ScaleShape::kBlocks;
  static constexpr bool kHasShapes = kShape == ScaleShape::kAny;
  static constexpr bool kDecodesSimply = kShape != ScaleShape::kAny;  // without branches
  static constexpr bool kHasChunkScales = false;
  static constexpr bool kHasQuads = false;
  const uint8_t* data;
  int64_t row_bytes, matrix_bytes;
  const float* scales;
  int64_t row_scales, matrix_scales;  // of a row of blocks, of a matrix
  int32_t block_rows;
  int32_t block_columns;  // 0: all
  Quotient by_block;      // in units of kWeightsAtOnce, if blocks are a multiple of it

  static ScaledWeights Of(const TensorView& w) {
    const QuantizedFormat& format = w.parts->format;
    const TensorView values = ops::PartOf(w, w.parts->values, 0);
    const TensorView scales = ops::PartOf(w, w.parts->scales, 0);
    const bool is_stack = w.rank == 3;
    const int64_t rows = values.shape[0], columns = values.shape[1];
    const int64_t block_columns = format.block_columns >= columns ? 0 : format.block_columns;
    return {.data = values.Data<const uint8_t>(),
            .row_bytes = values.row_stride_bytes,
            .matrix_bytes = is_stack ? w.parts->values.row_stride_bytes : 0,
            .scales = scales.Data<const float>(),
            .row_scales = scales.shape[1],
            .matrix_scales = is_stack ? scales.Elements() : 0,
            .block_rows = static_cast<int32_t>(std::clamp<int64_t>(rows, 1, format.block_rows)),
            .block_columns = static_cast<int32_t>(block_columns),
            .by_block =
                Quotient::By(std::max<int64_t>(block_columns / kWeightsAtOnce, 1))};
  }

  // True if the weights are of this shape, where rows have a multiple of kWeightsAtOnce columns.
  bool Are(ScaleShape shape) const {
    const bool aligned = (reinterpret_cast<uintptr_t>(data) | static_cast<uint64_t>(row_bytes) |
                          static_cast<uint64_t>(matrix_bytes)) % sizeof(EightBytes) == 0;
    const bool of_rows = block_columns == 0;
    return aligned && (shape == ScaleShape::kRows
                           ? of_rows
                           : !of_rows && block_columns % kWeightsAtOnce == 0);
  }
  template <ScaleShape kOther>
  ScaledWeights<kFormat, kOther> As() const {
    return {data,          row_bytes,  matrix_bytes,  scales,   row_scales,
            matrix_scales, block_rows, block_columns, by_block};
  }

  struct Row {
    const uint8_t* at;
    const float* scales;
    int32_t block_columns;
    Quotient by_block;

    // As they are stored; 0 beyond `count`, which may be negative.
    PAGEMILL_DEVICE EightBytes LoadBytes(int64_t first, int count) const {
      constexpr int kSize = sizeof(EightBytes);
      if constexpr (kShape != ScaleShape::kAny) {
        return LoadEightBytes<kSize>(at + first);  // there are whole ones alone
      }
      if (count == kWeightsAtOnce && reinterpret_cast<uintptr_t>(at) % kSize == 0) {
        return LoadEightBytes<kSize>(at + first);
      }
      EightBytes bytes = {};
      PAGEMILL_UNROLL
      for (int i = 0; i < kWeightsAtOnce; ++i) {
        if (i < count) bytes.words[i / 4] |= uint32_t{at[first + i]} << i % 4 * 8;
      }
      return bytes;
    }

    PAGEMILL_DEVICE void Load(int64_t first, int count, float (&to)[kWeightsAtOnce]) const {
      EightBytes bytes = LoadBytes(first, count);
      if constexpr (kFormat == DType::kI8) {
        // With 128 more, they have no sign.
        PAGEMILL_UNROLL
        for (uint32_t& word : bytes.words) word ^= 0x80808080u;
        PAGEMILL_UNROLL
        for (int i = 0; i < kWeightsAtOnce; ++i) to[i] = bytes.Number(i, /*origin=*/128);
      } else {
        PAGEMILL_UNROLL
        for (int i = 0; i < kWeightsAtOnce; i += 2) {
          const uint32_t word = bytes.words[i / 4];
          const FloatPair pair =
              Float8PairToFloats(static_cast<uint16_t>(i % 4 == 0 ? word : word >> 16));
          to[i] = pair.low;
          to[i + 1] = pair.high;
        }
      }
      if (kShape == ScaleShape::kRows || (kShape == ScaleShape::kAny && block_columns == 0)) return;
      const auto column = static_cast<int32_t>(first);
      if (kShape == ScaleShape::kBlocks || block_columns % kWeightsAtOnce == 0) {
        const float scale = scales[by_block.Of(static_cast<uint32_t>(column / kWeightsAtOnce))];
        PAGEMILL_UNROLL
        for (int i = 0; i < kWeightsAtOnce; ++i) to[i] *= scale;
      } else {
        PAGEMILL_UNROLL
        for (int i = 0; i < kWeightsAtOnce; ++i) {
          if (i < count) to[i] *= scales[(column + i) / block_columns];
        }
      }
    }
    PAGEMILL_DEVICE float Factor() const { return block_columns == 0 ? scales[0] : 1; }
    PAGEMILL_DEVICE const uint8_t* bytes() const { return at; }
  };

  PAGEMILL_DEVICE int64_t BytesOfRow(int64_t) const { return row_bytes; }

  PAGEMILL_DEVICE Row At(int64_t matrix, int64_t row) const {
    const int32_t block = static_cast<int32_t>(row) / block_rows;
    return {data + matrix * matrix_bytes + row * row_bytes,
            scales + matrix * matrix_scales + block * row_scales, block_columns, by_block};
  }
};

// True for the weights that WithWeights() takes.
inline bool AreReadable(const TensorView& w) {
  const int64_t columns = w.shape[static_cast<size_t>(w.rank - 1)];
  if (ArePackedMxfp4(w)) return columns <= kMaxPackedColumns;
  if (w.parts == nullptr) return IsReadableFormat(w.dtype);
  if (ops::IsScaled(w)) return true;
  const QuantizedFormat& format = w.parts->format;
  const TensorView values = ops::PartOf(w, w.parts->values, 0);
  return ops::PackedShapeOf(format, w.dtype, values).columns <= kMaxPackedColumns;
}

// Calls `body` with the weights of a view, in memory of the device, for kernels.
template <typename Body>
void WithWeights(const TensorView& w, const Body& body) {
  if (ArePackedMxfp4(w)) return WithWeights(Mxfp4Parts(w).view(), body);
  if (w.parts == nullptr) {
    return ops::WithWeightFormat(w.dtype, [&]<DType kFormat>() {
      body(StoredWeights<kFormat>::Of(w));
    });
  }
  const bool has_4_bits = w.dtype == DType::kU4;
  switch (w.parts->format.layout) {
    case QuantizedLayout::kScaled:
      return w.dtype == DType::kI8 ? body(ScaledWeights<DType::kI8>::Of(w))
                                   : body(ScaledWeights<DType::kF8E4M3>::Of(w));
    case QuantizedLayout::kAwq:
      return body(PackedWeights<QuantizedLayout::kAwq, 4>::Of(w));
    case QuantizedLayout::kGptq:
    case QuantizedLayout::kGptqV2:
      return has_4_bits ? body(PackedWeights<QuantizedLayout::kGptq, 4>::Of(w))
                        : body(PackedWeights<QuantizedLayout::kGptq, 8>::Of(w));
    case QuantizedLayout::kPackQuantized:
      return has_4_bits ? body(PackedWeights<QuantizedLayout::kPackQuantized, 4>::Of(w))
                        : body(PackedWeights<QuantizedLayout::kPackQuantized, 8>::Of(w));
    case QuantizedLayout::kMxfp4:
    case QuantizedLayout::kNvfp4:
      return body(PackedWeights<QuantizedLayout::kMxfp4, 4>::Of(w));
  }
}

// As WithWeights(), with ScaledWeights of shapes that are known, with aligned blocks, and with
// packed integers from the beginning of a chunk and of words on. False, and `body` is not called,
// if they are not so.
template <typename Body>
bool WithShapedWeights(const TensorView& w, const Body& body) {
  if (ArePackedMxfp4(w)) return WithShapedWeights(Mxfp4Parts(w).view(), body);
  const auto with_shape = [&]<DType kFormat>(const ScaledWeights<kFormat>& weights) {
    if (weights.Are(ScaleShape::kRows)) {
      body(weights.template As<ScaleShape::kRows>());
    } else if (weights.Are(ScaleShape::kBlocks)) {
      body(weights.template As<ScaleShape::kBlocks>());
    } else {
      return false;
    }
    return true;
  };
  if (w.parts != nullptr && ops::IsScaled(w)) {
    return w.dtype == DType::kI8 ? with_shape(ScaledWeights<DType::kI8>::Of(w))
                                 : with_shape(ScaledWeights<DType::kF8E4M3>::Of(w));
  }
  if (w.parts != nullptr) {
    const QuantizedFormat& format = w.parts->format;
    if (format.first_column % kChunkColumns != 0) return false;
    if (format.layout == QuantizedLayout::kAwq &&
        (format.first_row % kWeightsAtOnce != 0 || format.row_step % kWeightsAtOnce != 0)) {
      return false;
    }
  }
  if (w.parts == nullptr && IsBlockFormat(w.dtype)) {
    bool are_aligned = false;
    ops::WithBlockFormat(w.dtype, [&]<DType kFormat>() {
      const auto weights = StoredWeights<kFormat>::Of(w);
      are_aligned = weights.AreAligned();
      if (are_aligned) body(weights.Aligned());
    });
    return are_aligned;
  }
  WithWeights(w, [&]<typename W>(const W& weights) {
    if constexpr (!W::kHasShapes) body(weights);
  });
  return true;
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_LINEAR_WEIGHTS_H_
