// File: cuda/ops/linear/packed_weights.h
// Rows of packed integers as checkpoints store them (cc/tensor/quantized.h), for kernels that read
// weights through WithWeights() (weights.h). Values are those of ReadWeightRow()
// (cc/ops/quantized/quantized.h); those of an index of no group are NaN.
#ifndef PAGEMILL_CUDA_OPS_LINEAR_PACKED_WEIGHTS_H_
#define PAGEMILL_CUDA_OPS_LINEAR_PACKED_WEIGHTS_H_

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "cc/ops/quantized/quantized.h"
#include "cc/tensor/dtype.h"
#include "cc/tensor/quantized.h"
#include "cc/tensor/tensor_view.h"
#include "cuda/gpu_vendor.h"
#include "cuda/ops/linear/quotient.h"
#include "cuda/ops/linear/weight_row.h"

namespace pagemill::gpu {

// Columns of the largest matrix of packed integers: that of Quotient, in units of 32.
inline constexpr int64_t kMaxPackedColumns = int64_t{1} << 20;

// The numbers by which all scales of a matrix are multiplied; null: 1.
struct MatrixFactors {
  const float* data;
  int64_t step;  // from one matrix to the next
};
// In the place of what a layout lacks, without more bytes: code of others stays as it is.
struct Nothing {};

// Packed integers. kGptq stands for both versions of gptq, kMxfp4 for nvfp4, too.
template <QuantizedLayout kLayout, int kBits>
struct PackedWeights {
  static constexpr bool kLiesInRows = ops::IsByRows({.layout = kLayout});
  static constexpr bool kHasFactors = false;
  static constexpr bool kHasShapes = false;
  static constexpr bool kDecodesSimply = false;
  static constexpr bool kHasChunkScales = true;
  static constexpr bool kHasFp4 = ops::HasFp4({.layout = kLayout});
  static constexpr bool kIsAwq = kLayout == QuantizedLayout::kAwq;
  static constexpr bool kHasQuads = kIsAwq;
  static constexpr int kInWord = 32 / kBits;
  static constexpr int kWords = kIsAwq ? kWeightsAtOnce : kWeightsAtOnce / kInWord;
  static constexpr int64_t kGroupUnit = 32;  // columns of a group are a multiple of it

  const uint32_t* data;    // values
  const void* scales;
  const uint32_t* zeros;   // null: 2^(kBits - 1)
  const int32_t* groups;   // null: groups follow each other
  int64_t matrix_words, matrix_scales, matrix_zeros, matrix_groups;  // from one matrix to the next
  int64_t rows, columns, num_groups;                                 // of the checkpoint's matrix
  int64_t first_row, row_step, first_column;
  Quotient by_group;
  DType scale_type;
  std::conditional_t<kHasFp4, MatrixFactors, Nothing> factors;
  int32_t zero_offset;  // what gptq has subtracted from its zero points

  static PackedWeights Of(const TensorView& w) {
    const QuantizedParts& parts = *w.parts;
    const ops::PackedShape shape =
        ops::PackedShapeOf(parts.format, w.dtype, ops::PartOf(w, parts.values, 0));
    const auto matrix_elements = [&](const TensorView& part) {
      const bool is_stack = w.rank == 3 && parts.format.row_step == 0 && part.rank > 0;
      return is_stack ? part.row_stride_bytes / RowBytes(part.dtype, 1) : 0;
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
            .by_group = Quotient::By(std::max<int64_t>(group / kGroupUnit, 1)),
            .scale_type = parts.scales.dtype,
            .factors = FactorsOf(data_of(parts.factor), matrix_elements(parts.factor)),
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
    std::conditional_t<kHasFp4, float, Nothing> factor;  // of all scales
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
      uint32_t scale, zeros;  // bits, of nvfp4 two scales; a word
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
        if constexpr (kHasFp4) {
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
    PAGEMILL_DEVICE void Decode(const Stored& stored, const ChunkOfSpan&, unsigned eighth,
                                const ChunkScale& scale, float (&to)[kWeightsAtOnce]) const {
      float by = scale.scale;
      if constexpr (kHasFp4) {
        if (eighth >= kGroupUnit / 2 / kWeightsAtOnce) by = scale.other;
      }
      PAGEMILL_UNROLL
      for (int i = 0; i < kWeightsAtOnce; ++i) {
        to[i] = stored.ValueOf(i, shift, scale.other) * by;
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

    PAGEMILL_DEVICE bool HasHalves() const { return scale_type == DType::kF8E4M3; }

    // `group`: of 32 columns and more; half of it is one of nvfp4.
    PAGEMILL_DEVICE StoredScale LoadScaleOfGroup(int64_t group) const {
      const int64_t i = first_scale + group * scale_step;
      StoredScale stored = {0, 0};
      if constexpr (kHasFp4) {
        const uint8_t* const bytes = static_cast<const uint8_t*>(scales);
        if (HasHalves()) {
          const uint8_t* const two = bytes + first_scale + 2 * group;
          stored.scale = two[0] | uint32_t{two[1]} << 8;
        } else {
          stored.scale = bytes[i];
        }
      } else if (scale_type == DType::kF32) {
        stored.scale = static_cast<const uint32_t*>(scales)[i];
      } else {
        stored.scale = static_cast<const uint16_t*>(scales)[i];
      }
      if (zeros != nullptr) stored.zeros = zeros[group * zero_step];
      return stored;
    }

    // `other` is the zero point, in a float whose last bit is 1, as integers are before it is
    // subtracted; of floats of 4 bits, the scale of the second half.
    PAGEMILL_DEVICE ChunkScale ScaleOf(const StoredScale& stored) const {
      if constexpr (kHasFp4) {
        if (HasHalves()) {
          const FloatPair pair = Float8PairToFloats(static_cast<uint16_t>(stored.scale));
          return {pair.low * factor, pair.high * factor};
        }
        float power = stored.scale == 0 ? 0x1p-127f : BitsToFloat(stored.scale << 23);
        if (stored.scale == 255) power = NAN;
        return {power, power};
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
              .factor = FactorOf(matrix),
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

 private:
  static auto FactorsOf(const void* data, int64_t step) {
    if constexpr (kHasFp4) {
      return MatrixFactors{static_cast<const float*>(data), step};
    } else {
      return Nothing{};
    }
  }
  PAGEMILL_DEVICE auto FactorOf(int64_t matrix) const {
    if constexpr (kHasFp4) {
      return factors.data == nullptr ? 1.0f : factors.data[matrix * factors.step];
    } else {
      return Nothing{};
    }
  }
};

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_LINEAR_PACKED_WEIGHTS_H_
