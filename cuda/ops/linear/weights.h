// File: cuda/ops/linear/weights.h
// Weights as checkpoints store them, for kernels: rows of a plain or block format, and quantized
// weights with parts (cc/tensor/quantized.h). A kernel is a template of the type that reads them.
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
#include <type_traits>

#include "cc/base/status.h"
#include "cc/ops/block_format/block_layout.h"
#include "cc/ops/quantized/quantized.h"
#include "cc/tensor/dtype.h"
#include "cc/tensor/quantized.h"
#include "cc/tensor/tensor_view.h"
#include "cuda/gpu_vendor.h"
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

// n / divisor for small n: kernels divide for every few columns.
struct Quotient {
  uint64_t inverse;  // of the divisor, times 2^32

  // Right where n times the divisor is below 2^32.
  static Quotient By(int64_t divisor) {
    return {(uint64_t{1} << 32) / static_cast<uint64_t>(divisor) + 1};
  }
  PAGEMILL_DEVICE int64_t Of(uint32_t n) const {
    return static_cast<int64_t>((n * inverse) >> 32);
  }
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

// Columns of the largest matrix of packed integers: that of Quotient, in units of 32.
inline constexpr int64_t kMaxPackedColumns = int64_t{1} << 20;

// Packed integers. Of the two versions of gptq, kGptq stands for both.
template <QuantizedLayout kLayout, int kBits>
struct PackedWeights {
  static constexpr bool kLiesInRows =
      kLayout == QuantizedLayout::kPackQuantized || kLayout == QuantizedLayout::kMxfp4;
  static constexpr bool kHasFactors = false;
  static constexpr bool kHasShapes = false;
  static constexpr bool kDecodesSimply = false;
  static constexpr bool kHasChunkScales = true;
  static constexpr bool kIsAwq = kLayout == QuantizedLayout::kAwq;
  static constexpr bool kHasQuads = kIsAwq;
  static constexpr int kInWord = 32 / kBits;
  static constexpr int kWords = kIsAwq ? kWeightsAtOnce : kWeightsAtOnce / kInWord;
  static constexpr int64_t kGroupUnit = 32;  // columns of a group are a multiple of it

  const uint32_t* data;    // values
  const void* scales;
  const uint32_t* zeros;   // null: 2^(kBits - 1)
  const int32_t* groups;   // null: groups follow each other
  int64_t matrix_words, matrix_scales, matrix_zeros, matrix_groups;  // elements of a matrix
  int64_t rows, columns, num_groups;                                 // of the checkpoint's matrix
  int64_t first_row, row_step, first_column;
  Quotient by_group;
  DType scale_type;
  int32_t zero_offset;  // what gptq has subtracted from its zero points

  static PackedWeights Of(const TensorView& w) {
    const QuantizedParts& parts = *w.parts;
    const ops::PackedShape shape =
        ops::PackedShapeOf(parts.format, w.dtype, ops::PartOf(w, parts.values, 0));
    const auto matrix_elements = [&](const TensorView& part) {
      const bool is_stack = w.rank == 3 && parts.format.row_step == 0 && part.rank > 0;
      return is_stack ? ops::PartOf(w, part, 0).Elements() : 0;
    };
    const auto data_of = [](const TensorView& part) {
      return part.rank == 0 ? nullptr : part.data;
    };
    const int64_t group = std::min(parts.format.block_columns, shape.columns);
    return {.data = parts.values.Data<const uint32_t>(),
            .scales = parts.scales.data,
            .zeros = static_cast<const uint32_t*>(data_of(parts.zeros)),
            .groups = static_cast<const int32_t*>(data_of(parts.groups)),
            .matrix_words = matrix_elements(parts.values),
            .matrix_scales = matrix_elements(parts.scales),
            .matrix_zeros = matrix_elements(parts.zeros),
            .matrix_groups = matrix_elements(parts.groups),
            .rows = shape.rows,
            .columns = shape.columns,
            .num_groups = shape.groups,
            .first_row = parts.format.first_row,
            .row_step = parts.format.row_step,
            .first_column = parts.format.first_column,
            .by_group = Quotient::By(group / kGroupUnit),
            .scale_type = parts.scales.dtype,
            .zero_offset = parts.format.layout == QuantizedLayout::kGptq ? 1 : 0};
  }

  // Words, scales and zero points of one row, from column first_column on.
  struct Row {
    const uint32_t* values;
    int64_t value_step;  // from one word of the row to the next
    const void* scales;
    int64_t first_scale, scale_step;
    const uint32_t* zeros;
    int64_t zero_step;
    const int32_t* groups;
    int64_t num_groups, first_column;
    Quotient by_group;
    DType scale_type;
    int32_t zero_offset;
    int shift;       // of an AWQ word
    int zero_shift;

    PAGEMILL_DEVICE void Load(int64_t first, int, float (&to)[kWeightsAtOnce]) const {
      const ChunkOfSpan chunk = ChunkOfSpan::At(first);
      const auto eighth = static_cast<unsigned>(first % kChunkColumns / kWeightsAtOnce);
      const Stored stored = LoadStored(chunk, eighth);
      if (HasChunkScales()) {
        return Decode(stored, chunk, eighth, ScaleOf(LoadScale(chunk)), to);
      }
      PAGEMILL_UNROLL
      for (int i = 0; i < kWeightsAtOnce; ++i) {
        const int64_t group = groups[first_column + first + i];
        to[i] = NAN;
        if (group < 0 || group >= num_groups) continue;
        const ChunkScale scale = ScaleOf(LoadScaleOfGroup(group));
        to[i] = stored.ValueOf(i, shift, scale.other) * scale.scale;
      }
    }

    // What the scale of a group is computed from.
    struct StoredScale {
      uint32_t scale, zeros;  // bits; a word
    };
    // The words of eight integers.
    struct Stored {
      uint32_t words[kWords];

      // `origin` is what ScaleOf() has; `shift`: the bits before a row's in a word of AWQ.
      PAGEMILL_DEVICE float ValueOf(int i, int shift, float origin) const {
        uint32_t word = words[kIsAwq ? i : i / kInWord];
        int byte = i % kInWord;
        if constexpr (kIsAwq) {
          word = Take(word, shift);
          byte = 0;
        } else if constexpr (kBits == 4) {
          word = word >> i % 2 * 4 & 0x0f0f0f0fu;
          byte /= 2;
        }
        if constexpr (kLayout == QuantizedLayout::kMxfp4) {
          // Exponent and mantissa at their places in f32, with a bias of 1 instead of 127. The sum
          // makes -0 a 0.
          const uint32_t q = word >> 8 * byte;
          return BitsToFloat((q & 7) << 22 | (q & 8) << 28) * 0x1p126f + 0.0f;
        } else {
          return BitsToFloat(WithByte(kIntegerBits, word, byte)) - origin;
        }
      }
    };
    PAGEMILL_DEVICE Stored LoadStored(const ChunkOfSpan& chunk, unsigned eighth) const {
      const int64_t first = int64_t{chunk.FirstColumn()} + eighth * kWeightsAtOnce;
      Stored stored;
      PAGEMILL_UNROLL
      for (int i = 0; i < kWords; ++i) {
        stored.words[i] = values[((kIsAwq ? first : first / kInWord) + i) * value_step];
      }
      return stored;
    }

    PAGEMILL_DEVICE bool HasChunkScales() const { return groups == nullptr; }
    // What a lane loads for itself and others, and what it has of all. Words of AWQ are of eight
    // rows: lanes i * 4 + t, for i in 0..7, have the rows of a word, and the same columns.
    using Part = std::conditional_t<kIsAwq, uint32_t, Stored>;
    PAGEMILL_DEVICE Part LoadPart(const ChunkOfSpan& chunk, unsigned eighth) const {
      if constexpr (kIsAwq) {
        const int64_t column = int64_t{chunk.FirstColumn()} + eighth * kWeightsAtOnce + Lane() / 4;
        return values[column * value_step];
      } else {
        return LoadStored(chunk, eighth);
      }
    }
    // LoadPart() of this row, and of those 8, 16 and 24 behind it: of AWQ, in one load.
    PAGEMILL_DEVICE bool HasQuads() const {
      return kIsAwq && (reinterpret_cast<uintptr_t>(values) | static_cast<uint64_t>(value_step) *
                                                                  sizeof(uint32_t)) % 16 == 0;
    }
    PAGEMILL_DEVICE Vector<uint32_t, 4> LoadQuad(const ChunkOfSpan& chunk, unsigned eighth) const {
      const int64_t column = int64_t{chunk.FirstColumn()} + eighth * kWeightsAtOnce + Lane() / 4;
      return *reinterpret_cast<const Vector<uint32_t, 4>*>(values + column * value_step);
    }
    PAGEMILL_DEVICE static Stored StoredOf(const Part& part) {
      if constexpr (kIsAwq) {
        Stored stored;
        PAGEMILL_UNROLL
        for (int i = 0; i < kWords; ++i) {
          stored.words[i] = Shuffle(AllLanes(), part, i * 4 + Lane() % 4);
        }
        return stored;
      } else {
        return part;
      }
    }

    PAGEMILL_DEVICE StoredScale LoadScale(const ChunkOfSpan& chunk) const {
      const auto column = static_cast<uint32_t>(first_column) + chunk.FirstColumn();
      return LoadScaleOfGroup(by_group.Of(column / kGroupUnit));
    }
    PAGEMILL_DEVICE ChunkScale ScaleOf(const StoredScale& stored, const ChunkOfSpan&) const {
      return ScaleOf(stored);
    }
    PAGEMILL_DEVICE void Decode(const Stored& stored, const ChunkOfSpan&, unsigned,
                                const ChunkScale& scale, float (&to)[kWeightsAtOnce]) const {
      PAGEMILL_UNROLL
      for (int i = 0; i < kWeightsAtOnce; ++i) {
        to[i] = stored.ValueOf(i, shift, scale.other) * scale.scale;
      }
    }
    PAGEMILL_DEVICE float Factor() const { return 1; }
    PAGEMILL_DEVICE const uint8_t* bytes() const {
      return reinterpret_cast<const uint8_t*>(values);
    }

   private:
    static constexpr uint32_t kIntegerBits = 0x4b000000;  // of 2^23

    PAGEMILL_DEVICE static uint32_t Take(uint32_t word, int shift) {
      return word >> shift & ((1u << kBits) - 1);
    }

    PAGEMILL_DEVICE StoredScale LoadScaleOfGroup(int64_t group) const {
      const int64_t i = first_scale + group * scale_step;
      StoredScale stored = {0, 0};
      if constexpr (kLayout == QuantizedLayout::kMxfp4) {
        stored.scale = static_cast<const uint8_t*>(scales)[i];
      } else if (scale_type == DType::kF32) {
        stored.scale = static_cast<const uint32_t*>(scales)[i];
      } else {
        stored.scale = static_cast<const uint16_t*>(scales)[i];
      }
      if (zeros != nullptr) stored.zeros = zeros[group * zero_step];
      return stored;
    }

    // `other` is the zero point, in a float whose last bit is 1, as integers are before it is
    // subtracted.
    PAGEMILL_DEVICE ChunkScale ScaleOf(const StoredScale& stored) const {
      if constexpr (kLayout == QuantizedLayout::kMxfp4) {
        if (stored.scale == 255) return {NAN, 0};
        return {stored.scale == 0 ? 0x1p-127f : BitsToFloat(stored.scale << 23), 0};
      }
      uint32_t zero = 1u << (kBits - 1);
      if (zeros != nullptr) zero = Take(stored.zeros, zero_shift) + zero_offset;
      const float of_f16 = HalfBitsToFloat(static_cast<uint16_t>(stored.scale));
      const float of_others =
          BitsToFloat(scale_type == DType::kF32 ? stored.scale : stored.scale << 16);
      return {scale_type == DType::kF16 ? of_f16 : of_others,
              BitsToFloat(kIntegerBits | Take(zero, 0))};
    }
  };

  PAGEMILL_DEVICE int64_t BytesOfRow(int64_t columns_of_row) const {
    return columns_of_row / kInWord * static_cast<int64_t>(sizeof(uint32_t));
  }

  PAGEMILL_DEVICE Row At(int64_t matrix, int64_t row) const {
    const int64_t n = first_row + matrix * row_step + row;
    const int place = static_cast<int>(n % kInWord);
    const int awq_place = place % 2 * 4 + place / 2;
    Row of = {.values = data + matrix * matrix_words,
              .value_step = 1,
              .scales = scales,
              .first_scale = matrix * matrix_scales,
              .scale_step = 1,
              .zeros = zeros,
              .zero_step = 1,
              .groups = groups == nullptr ? nullptr : groups + matrix * matrix_groups,
              .num_groups = num_groups,
              .first_column = first_column,
              .by_group = by_group,
              .scale_type = scale_type,
              .zero_offset = zero_offset,
              .shift = kIsAwq ? awq_place * kBits : 0,
              .zero_shift = (kIsAwq ? awq_place : place) * kBits};
    if (zeros != nullptr) of.zeros += matrix * matrix_zeros;
    if constexpr (kLiesInRows) {
      of.values += (n * columns + first_column) / kInWord;
      of.first_scale += n * num_groups;
      if (zeros != nullptr) of.zeros += n / kInWord * num_groups;
    } else {
      of.value_step = kIsAwq ? rows / kInWord : rows;
      of.values += kIsAwq ? first_column * of.value_step + n / kInWord
                          : first_column / kInWord * of.value_step + n;
      of.first_scale += n;
      of.scale_step = rows;
      of.zero_step = rows / kInWord;
      if (zeros != nullptr) of.zeros += n / kInWord;
    }
    return of;
  }
};

// True for the weights that WithWeights() takes.
inline bool AreReadable(const TensorView& w) {
  if (w.parts == nullptr) return IsReadableFormat(w.dtype);
  if (ops::IsScaled(w)) return true;
  const QuantizedFormat& format = w.parts->format;
  const TensorView values = ops::PartOf(w, w.parts->values, 0);
  return ops::PackedShapeOf(format, w.dtype, values).columns <= kMaxPackedColumns;
}

// Calls `body` with the weights of a view, in memory of the device, for kernels.
template <typename Body>
void WithWeights(const TensorView& w, const Body& body) {
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
      return body(PackedWeights<QuantizedLayout::kMxfp4, 4>::Of(w));
  }
}

// As WithWeights(), with ScaledWeights of shapes that are known, with aligned blocks, and with
// packed integers from the beginning of a chunk and of words on. False, and `body` is not called,
// if they are not so.
template <typename Body>
bool WithShapedWeights(const TensorView& w, const Body& body) {
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
