// File: cc/ops/linear/block_kernels/block_avx2_inl.h
// Products of block-format slices with quantized activations in 32-byte registers, generic in the
// multiply instruction. Included by files compiled for AVX2 and more; everything has internal
// linkage.
//
// A class `Products` has
//
//   template <int kBits> class ByteSums   // sums of products of kBits-bit weights, in 8 lanes
//     void Start(start)                   // int32 to start from
//     void Add(i, values, x)              // the i-th quad: unsigned bytes times signed bytes
//     __m256i Total(start) const          // exact; the same start
//   static constexpr bool kHasBytesOf8Bits    // ByteSums<8> exists
//   static __m256i AddWords(sums, a, b)   // adds products of pairs of int16; if it does not
//
// Weights of 8 bits are multiplied as words if `Products` cannot multiply them as bytes.
#ifndef PAGEMILL_CC_OPS_LINEAR_BLOCK_KERNELS_BLOCK_AVX2_INL_H_
#define PAGEMILL_CC_OPS_LINEAR_BLOCK_KERNELS_BLOCK_AVX2_INL_H_

#include <immintrin.h>

#include <cstdint>

#include "cc/ops/linear/block_kernels/block_walk_inl.h"
#include "cc/ops/linear/block_kernels/packed_blocks_avx2.h"
#include "cc/ops/linear/block_kernels/quantized_activations_avx2.h"
#include "cc/ops/linear/packed_blocks.h"
#include "cc/ops/linear/packed_gemm_kernels.h"
#include "cc/ops/linear/quantized_activations.h"
#include "cc/tensor/dtype.h"

#define PAGEMILL_INLINE [[gnu::always_inline]] inline

namespace pagemill::ops::linear {
namespace {

template <class Products, DType kDType>
constexpr bool kUsesWords = kValueBits<kDType> == 8 && !Products::kHasBytesOf8Bits;

// kPlanes is 1 for activations of 8 bits, 2 for those of 15, 0 for mixed chunks, which have both.
constexpr int kMixed = 0;

template <class Products, DType kDType, int kPlanes>
constexpr XOrder kOrderOf =
    kUsesWords<Products, kDType> ? (kPlanes == 1 ? XOrder::kWordsOf8Bits : XOrder::kWords)
                                 : (kPlanes == 1 ? XOrder::kOnePlane : XOrder::kTwoPlanes);

template <class Products, DType kDType, int kPlanes>
constexpr int64_t kRecordBytesOf = kXRecordBytes<kPlacesOf<kOrderOf<Products, kDType, kPlanes>>>;

// Weights decoded for several rows of x, as 32-byte registers: by column, then quad; words in two
// halves, the even and the odd elements of a quad.
struct DecodedBlock {
  alignas(64) uint8_t values[2 * kColumns * kQuads * 32];
};

PAGEMILL_INLINE __m256i EvenWords(__m256i bytes) {
  return _mm256_and_si256(bytes, _mm256_set1_epi16(0xff));
}
PAGEMILL_INLINE __m256i OddWords(__m256i bytes) { return _mm256_srli_epi16(bytes, 8); }

// Source of weights: a record, for one row of x; a decoded block, for several.
template <DType kDType>
struct FromRecord {
  const uint8_t* record;
  PAGEMILL_INLINE __m256i Bytes(int c, int q) const { return Values<kDType>(record, c, q); }
  PAGEMILL_INLINE __m256i Words(int c, int q, int odd) const {
    return odd ? OddWords(Bytes(c, q)) : EvenWords(Bytes(c, q));
  }
};

struct FromDecoded {
  const DecodedBlock* block;
  PAGEMILL_INLINE __m256i Bytes(int c, int q) const {
    return Load(block->values + (c * kQuads + q) * 32);
  }
  PAGEMILL_INLINE __m256i Words(int c, int q, int odd) const {
    return Load(block->values + ((c * kQuads + q) * 2 + odd) * 32);
  }
};

template <class Products, DType kDType>
PAGEMILL_INLINE void Decode(const uint8_t* record, DecodedBlock* out) {
  uint8_t* to = out->values;
#pragma GCC unroll 4
  for (int c = 0; c < kColumns; ++c) {
#pragma GCC unroll 8
    for (int q = 0; q < kQuads; ++q) {
      const __m256i values = Values<kDType>(record, c, q);
      if constexpr (kUsesWords<Products, kDType>) {
        StoreAt(to, EvenWords(values));
        StoreAt(to + 32, OddWords(values));
        to += 64;
      } else {
        StoreAt(to, values);
        to += 32;
      }
    }
  }
}

// Sums of quads [kFirst, kFirst + kCount) of kRows rows of x times kCols columns from `column` on.
// Each starts at the row's integer at `start`, or at 0.
template <class Products, int kBits, int kPlanes, int kRows, int kCols, int kFirst, int kCount,
          bool kHasStart, class Source>
PAGEMILL_INLINE void SumBytes(const Source& w, int column, const uint8_t* x, int64_t start,
                              __m256i (&sums)[kRows][kCols]) {
  using Sums = typename Products::template ByteSums<kBits>;
  constexpr int64_t kX = kXRecordBytes<kPlanes>;
  const auto start_of = [&](int r) {
    return kHasStart ? Broadcast(x + r * kX + start) : _mm256_setzero_si256();
  };
  Sums upper[kRows][kCols];
  Sums lower[kRows][kCols];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int c = 0; c < kCols; ++c) {
      lower[r][c].Start(start_of(r));
      upper[r][c].Start(_mm256_setzero_si256());
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kCount; ++i) {
    // The two nibbles of a byte in turn.
    const int q = kCount == kQuads ? i / 2 + i % 2 * 4 : kFirst + i;
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const __m256i first = Broadcast(x + r * kX + 4 * q);
      const __m256i second = kPlanes == 2 ? Broadcast(x + r * kX + 32 + 4 * q) : first;
#pragma GCC unroll 4
      for (int c = 0; c < kCols; ++c) {
        const __m256i values = w.Bytes(column + c, q);
        if constexpr (kPlanes == 2) upper[r][c].Add(i, values, first);
        lower[r][c].Add(i, values, second);
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int c = 0; c < kCols; ++c) {
      sums[r][c] = lower[r][c].Total(start_of(r));
      if constexpr (kPlanes == 2) {
        const __m256i total = upper[r][c].Total(_mm256_setzero_si256());
        sums[r][c] = _mm256_add_epi32(sums[r][c], _mm256_slli_epi32(total, 7));
      }
    }
  }
}

template <class Products, int kRows, int kCols, class Source>
PAGEMILL_INLINE void SumWords(const Source& w, int column, const uint8_t* x,
                              __m256i (&sums)[kRows][kCols]) {
  constexpr int64_t kX = kXRecordBytes<2>;
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int c = 0; c < kCols; ++c) sums[r][c] = Broadcast(x + r * kX + kOffsetAt<2>);
  }
#pragma GCC unroll 8
  for (int q = 0; q < kQuads; ++q) {
#pragma GCC unroll 2
    for (int odd = 0; odd < 2; ++odd) {
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const __m256i pairs = Broadcast(x + r * kX + 8 * q + 4 * odd);
#pragma GCC unroll 4
        for (int c = 0; c < kCols; ++c) {
          sums[r][c] = Products::AddWords(sums[r][c], w.Words(column + c, q, odd), pairs);
        }
      }
    }
  }
}

// Adds the products of the two halves of a block of kRows rows of x, each with a scale of its own.
template <int kPlaces, int kRows, int kCols, class Rows>
PAGEMILL_INLINE void AddHalves(const Scales& scales, int column, const uint8_t* x,
                               const __m256i (&first)[kRows][kCols],
                               const __m256i (&second)[kRows][kCols], const Rows& y) {
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    const __m256 x_scale = BroadcastFloat(x + r * kXRecordBytes<kPlaces> + kScaleAt<kPlaces>);
#pragma GCC unroll 4
    for (int c = 0; c < kCols; ++c) {
      float* at = y[r] + (column + c) * kColumnRows;
      const __m256 scaled =
          _mm256_mul_ps(_mm256_cvtepi32_ps(first[r][c]), scales.scale[column + c]);
      const __m256 both = _mm256_fmadd_ps(_mm256_cvtepi32_ps(second[r][c]),
                                          scales.second_scale[column + c], scaled);
      _mm256_store_ps(at, _mm256_fmadd_ps(both, x_scale, _mm256_load_ps(at)));
    }
  }
}

// Adds a block of kRows rows of x to kCols columns of the outputs of each.
template <class Products, DType kDType, int kPlanes, int kRows, int kCols, class Source, class Rows>
PAGEMILL_INLINE void AddBlock(const Source& w, const Scales& scales, int column, const uint8_t* x,
                              const Rows& y) {
  using T = BlockTraits<kDType>;
  constexpr int kBits = kValueBits<kDType>;
  constexpr int kPlaces = kPlacesOf<kOrderOf<Products, kDType, kPlanes>>;
  constexpr int64_t kAt = kOffsetAt<kPlaces>;
  // Otherwise GCC loads all of x before a loop over columns, and spills it.
  asm("" : "+r"(x));
  __m256i sums[kRows][kCols];
  if constexpr (kUsesWords<Products, kDType>) {
    SumWords<Products, kRows, kCols>(w, column, x, sums);
  } else if constexpr (T::kHasHalves) {
    __m256i others[kRows][kCols];
    SumBytes<Products, kBits, kPlanes, kRows, kCols, 0, 4, true>(w, column, x, kAt, sums);
    SumBytes<Products, kBits, kPlanes, kRows, kCols, 4, 4, true>(w, column, x, kAt + 4, others);
    if constexpr (T::kHasTwoScales) {
      return AddHalves<kPlaces, kRows, kCols>(scales, column, x, sums, others, y);
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int c = 0; c < kCols; ++c) {
        sums[r][c] =
            _mm256_add_epi32(_mm256_mullo_epi32(sums[r][c], scales.half_scales[0][column + c]),
                             _mm256_mullo_epi32(others[r][c], scales.half_scales[1][column + c]));
      }
    }
  } else {
    SumBytes<Products, kBits, kPlanes, kRows, kCols, 0, kQuads, !T::kHasMinimum>(w, column, x, kAt,
                                                                                 sums);
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    const uint8_t* record = x + r * kXRecordBytes<kPlaces>;
    const __m256 x_scale = BroadcastFloat(record + kScaleAt<kPlaces>);
#pragma GCC unroll 4
    for (int c = 0; c < kCols; ++c) {
      float* at = y[r] + (column + c) * kColumnRows;
      __m256 sum =
          _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums[r][c]),
                          _mm256_mul_ps(scales.scale[column + c], x_scale), _mm256_load_ps(at));
      if constexpr (T::kHasMinimum) {
        sum = _mm256_fmadd_ps(scales.minimum[column + c], BroadcastFloat(record + kAt), sum);
      }
      _mm256_store_ps(at, sum);
    }
  }
}

// Adds a block of n rows of x, whose records follow each other, to their outputs.
template <class Products, DType kDType, int kPlanes, class Rows>
PAGEMILL_INLINE void AddRows(const FromDecoded& w, const Scales& scales, const uint8_t* x,
                             int64_t n, const Rows& y) {
  constexpr int64_t kX = kRecordBytesOf<Products, kDType, kPlanes>;
  constexpr bool kWords = kUsesWords<Products, kDType>;
  // 8 sums of words, or of bytes of a plane, fit into registers with their operands.
  constexpr int kRows = kWords || kPlanes == 1 ? 4 : 2;
  int64_t r = 0;
  for (; r + kRows <= n; r += kRows) {
    for (int column = 0; column < kColumns; column += 2) {
      AddBlock<Products, kDType, kPlanes, kRows, 2>(w, scales, column, x + r * kX, y + r);
    }
  }
  for (; r < n; ++r) {
    AddBlock<Products, kDType, kPlanes, 1, 4>(w, scales, 0, x + r * kX, y + r);
  }
}

// Adds a record to the outputs of n rows of x.
template <class Products, DType kDType, int kPlanes>
PAGEMILL_INLINE void AddRecord(const uint8_t* head, const uint8_t* record, const uint8_t* x,
                               int64_t n, float* y) {
  Scales scales;
  LoadScales<kDType>(head, record, 0, &scales);
  DecodedBlock decoded;
  Decode<Products, kDType>(record, &decoded);
  const FromDecoded w = {&decoded};
  if constexpr (kPlanes == kMixed) {
    const int64_t shorts = x[kShortRecordsAt];
    const uint8_t* records = x + kMixedHeaderBytes;
    AddRows<Products, kDType, 1>(w, scales, records, shorts, NamedRows{y, x});
    AddRows<Products, kDType, 2>(w, scales, records + shorts * kRecordBytesOf<Products, kDType, 2>,
                                 n - shorts, NamedRows{y, x + shorts});
  } else {
    AddRows<Products, kDType, kPlanes>(w, scales, x, n, RowsInOrder{y});
  }
}

// The same for one row, without decoding.
template <class Products, DType kDType, int kPlanes>
PAGEMILL_INLINE void AddRecordToRow(const uint8_t* head, const uint8_t* record, const uint8_t* x,
                                    float* y) {
  Scales scales;
  LoadScales<kDType>(head, record, 0, &scales);
  const FromRecord<kDType> w = {record};
  if constexpr (kPlanes != kMixed) {
    AddBlock<Products, kDType, kPlanes, 1, 4>(w, scales, 0, x, RowsInOrder{y});
  } else if (x[kShortRecordsAt] == 1) {
    AddBlock<Products, kDType, 1, 1, 4>(w, scales, 0, x + kMixedHeaderBytes, RowsInOrder{y});
  } else {
    AddBlock<Products, kDType, 2, 1, 4>(w, scales, 0, x + kMixedHeaderBytes, RowsInOrder{y});
  }
}

template <DType kDType, XOrder kOrder>
struct BlockQuantizer {
  PAGEMILL_INLINE void operator()(const float* x, uint32_t bits, uint8_t* out) const {
    QuantizeBlock<kDType, kOrder>(x, bits, out);
  }
};

// For kKernels (block_walk_inl.h).
template <class Products, int kPlanes>
struct Avx2Blocks {
  static constexpr int64_t kPrefetchBytes = 16384;
  static constexpr bool kSharesColumns = kPlanes == kMixed;

  template <DType kDType>
  static constexpr int64_t BlockBytes(int64_t n) {
    if constexpr (kPlanes == kMixed) {
      return MixedBlockBytes<kPlacesOf<kOrderOf<Products, kDType, 2>>>(n);
    } else {
      return n * kRecordBytesOf<Products, kDType, kPlanes>;
    }
  }

  template <DType kDType>
  PAGEMILL_INLINE static void Prepare(const InputRows& x, uint8_t* chunk) {
    if constexpr (kPlanes == kMixed) {
      constexpr XOrder kOne = kOrderOf<Products, kDType, 1>;
      constexpr XOrder kTwo = kOrderOf<Products, kDType, 2>;
      PrepareMixedRows<kPlacesOf<kOne>, kPlacesOf<kTwo>>(
          x, chunk, LargestBits, BlockQuantizer<kDType, kOne>(), BlockQuantizer<kDType, kTwo>());
    } else {
      constexpr XOrder kOrder = kOrderOf<Products, kDType, kPlanes>;
      PrepareRows<kPlacesOf<kOrder>>(x, chunk, [](const float* from, uint8_t* to) {
        QuantizeBlock<kDType, kOrder>(from, LargestBits(from), to);
      });
    }
  }

  template <DType kDType>
  PAGEMILL_INLINE static void Add(const uint8_t* head, const uint8_t* record, const uint8_t* x,
                                  int64_t n, float* y) {
    if (n > 1) {
      AddRecord<Products, kDType, kPlanes>(head, record, x, n, y);
    } else {
      AddRecordToRow<Products, kDType, kPlanes>(head, record, x, y);
    }
  }
};

}  // namespace
}  // namespace pagemill::ops::linear

#undef PAGEMILL_INLINE

#endif  // PAGEMILL_CC_OPS_LINEAR_BLOCK_KERNELS_BLOCK_AVX2_INL_H_
