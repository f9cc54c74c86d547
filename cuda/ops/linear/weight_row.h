// File: cuda/ops/linear/weight_row.h
// Reading rows of weights in the formats of checkpoints, eight columns at a time: f32, bf16, f16
// and the block formats (cc/ops/block_format/block_layout.h), as stored. Values are those of the
// CPU's decoders, bit for bit.
//
//   float w[8];
//   LoadWeights<DType::kQ4_K, /*kAlignment=*/16>(row, /*first=*/64, /*count=*/8, w);
#ifndef PAGEMILL_CUDA_OPS_LINEAR_WEIGHT_ROW_H_
#define PAGEMILL_CUDA_OPS_LINEAR_WEIGHT_ROW_H_

#include <cstdint>

#include "cc/ops/block_format/block_layout.h"
#include "cc/tensor/dtype.h"
#include "cuda/gpu_vendor.h"

namespace pagemill::gpu {

inline constexpr int kWeightsAtOnce = 8;

// True for the formats that LoadWeights() reads.
inline bool IsReadableFormat(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kBF16:
    case DType::kF16:
    case DType::kQ4_0:
    case DType::kQ4_1:
    case DType::kQ5_0:
    case DType::kQ8_0:
    case DType::kQ4_K:
    case DType::kQ5_K:
    case DType::kQ6_K:
      return true;
    default:
      return false;
  }
}

// `count` elements of T, at a multiple of its size. All of them in one or two loads if the address
// allows it.
template <typename T>
PAGEMILL_DEVICE void LoadElements(const T* from, int count, float (&to)[kWeightsAtOnce]) {
  constexpr int kPerLoad = 16 / sizeof(T);
  using Load = Vector<T, kPerLoad>;
  if (count == kWeightsAtOnce && reinterpret_cast<uintptr_t>(from) % 16 == 0) {
    PAGEMILL_UNROLL
    for (int i = 0; i < kWeightsAtOnce; i += kPerLoad) {
      const Load load = *reinterpret_cast<const Load*>(from + i);
      PAGEMILL_UNROLL
      for (int j = 0; j < kPerLoad; ++j) to[i + j] = ToFloat(load.values[j]);
    }
  } else {
    PAGEMILL_UNROLL
    for (int i = 0; i < kWeightsAtOnce; ++i) to[i] = i < count ? ToFloat(from[i]) : 0;
  }
}

// Of |q| below 2^22, without a conversion, which takes as long as several additions.
PAGEMILL_DEVICE float IntegerToFloat(int32_t q) {
  return BitsToFloat(0x4b400000u + static_cast<uint32_t>(q)) - 0x1.8p23f;
}

// Columns of a row that have one scale, or two: a chunk.
inline constexpr int kChunkColumns = 32;

// Chunks that are loaded together: kSpanChunks * span and those behind it.
inline constexpr int kSpanChunks = 4;

struct ChunkOfSpan {
  unsigned span, i;

  PAGEMILL_DEVICE static ChunkOfSpan At(int64_t column) {
    const auto chunk = static_cast<unsigned>(column / kChunkColumns);
    return {chunk / kSpanChunks, chunk % kSpanChunks};
  }
  PAGEMILL_DEVICE unsigned FirstColumn() const { return (span * kSpanChunks + i) * kChunkColumns; }
};

// What the values of a chunk are computed with.
struct ChunkScale {
  float scale;
  float other;  // what is added; of q6_k the scale of the second 16 columns
};

// Eight bytes, four in a word.
struct EightBytes {
  uint32_t words[2];

  // Byte i as a number, less `origin`.
  PAGEMILL_DEVICE float Number(int i, int origin) const {
    return BitsToFloat(WithByte(0x4b000000u, words[i / 4], i % 4)) -
           (0x1p23f + static_cast<float>(origin));
  }
};

// At a multiple of kAlignment bytes.
template <int kAlignment>
PAGEMILL_DEVICE EightBytes LoadEightBytes(const uint8_t* at) {
  EightBytes bytes = {};
  if constexpr (kAlignment % 8 == 0) {
    const auto words = *reinterpret_cast<const Vector<uint32_t, 2>*>(at);
    bytes = {{words.values[0], words.values[1]}};
  } else if constexpr (kAlignment % 4 == 0) {
    PAGEMILL_UNROLL
    for (int i = 0; i < 2; ++i) bytes.words[i] = reinterpret_cast<const uint32_t*>(at)[i];
  } else if constexpr (kAlignment % 2 == 0) {
    PAGEMILL_UNROLL
    for (int i = 0; i < 4; ++i) {
      bytes.words[i / 2] |= uint32_t{reinterpret_cast<const uint16_t*>(at)[i]} << i % 2 * 16;
    }
  } else {
    PAGEMILL_UNROLL
    for (int i = 0; i < 8; ++i) bytes.words[i / 4] |= uint32_t{at[i]} << i % 4 * 8;
  }
  return bytes;
}

template <int kAlignment>
PAGEMILL_DEVICE uint32_t LoadTwoBytes(const uint8_t* at) {
  if constexpr (kAlignment % 2 == 0) return *reinterpret_cast<const uint16_t*>(at);
  return ops::LoadLe16(at);
}

// Blocks of a format begin at multiples of kAlignment bytes: of kBlockAlignment, or 1.
template <DType kFormat, int kAlignment>
struct BlockReader {
  static constexpr ops::BlockLayout kLayout = ops::LayoutOf(kFormat);
  static constexpr unsigned kSpans = kLayout.elements / kChunkColumns / kSpanChunks;  // of a block
  static constexpr bool kHasScales6 = kFormat == DType::kQ4_K || kFormat == DType::kQ5_K;

  // The block of a row, and the number of the chunk in it: the compiler sees which chunks of a span
  // have bytes in common.
  PAGEMILL_DEVICE static const uint8_t* BlockOf(const uint8_t* row, const ChunkOfSpan& chunk) {
    if constexpr (kSpans > 0) return row + int64_t{chunk.span / kSpans} * kLayout.bytes;
    return row + int64_t{chunk.span * kSpanChunks + chunk.i} * kLayout.bytes;
  }
  PAGEMILL_DEVICE static unsigned InBlock(const ChunkOfSpan& chunk) {
    if constexpr (kSpans > 0) return chunk.span % kSpans * kSpanChunks + chunk.i;
    return 0;
  }

  // Eight columns as they are stored: their nibbles or bytes, among others, and what belongs to
  // them.
  struct Stored {
    EightBytes quants, high;
  };

  // Columns 8 * eighth and those behind it, of chunk `s`.
  PAGEMILL_DEVICE static Stored LoadStored(const uint8_t* block, unsigned s, unsigned eighth) {
    const unsigned j = 8 * eighth;
    const uint8_t* const quants = block + kLayout.quants;
    if constexpr (kFormat == DType::kQ8_0) {
      return {LoadEightBytes<kAlignment>(quants + j), {}};
    } else if constexpr (kFormat == DType::kQ6_K) {
      return {LoadEightBytes<kAlignment>(quants + 64 * (s / 4) + 32 * (s % 2) + j),
              LoadEightBytes<kAlignment>(block + kLayout.high_bits + 32 * (s / 4) + j)};
    } else if constexpr (kFormat == DType::kQ5_K) {
      return {LoadEightBytes<kAlignment>(quants + 32 * (s / 2) + j),
              LoadEightBytes<kAlignment>(block + kLayout.high_bits + j)};
    } else if constexpr (kFormat == DType::kQ4_K) {
      return {LoadEightBytes<kAlignment>(quants + 32 * (s / 2) + j), {}};
    } else if constexpr (kFormat == DType::kQ5_0) {
      const uint32_t low = LoadTwoBytes<kAlignment>(block + kLayout.high_bits);
      const uint32_t high = LoadTwoBytes<kAlignment>(block + kLayout.high_bits + 2);
      return {LoadEightBytes<kAlignment>(quants + j % 16), {{low | high << 16, 0}}};
    } else {
      return {LoadEightBytes<kAlignment>(quants + j % 16), {}};
    }
  }

  // What the scale of a chunk is computed from, as it is stored.
  struct StoredScale {
    EightBytes first, last;
  };

  PAGEMILL_DEVICE static StoredScale LoadScale(const uint8_t* block, unsigned s) {
    if constexpr (kHasScales6) {
      return {LoadEightBytes<kAlignment>(block), LoadEightBytes<kAlignment>(block + 8)};
    } else if constexpr (kFormat == DType::kQ6_K) {
      return {{{LoadTwoBytes<kAlignment>(block + ops::kQ6KScaleOffset),
                LoadTwoBytes<kAlignment>(block + ops::kQ6KScalesOffset + 2 * s)}},
              {}};
    } else {
      const bool has_minimum = kFormat == DType::kQ4_1;
      return {{{LoadTwoBytes<kAlignment>(block),
                has_minimum ? LoadTwoBytes<kAlignment>(block + 2) : 0}},
              {}};
    }
  }

  PAGEMILL_DEVICE static ChunkScale ScaleOf(const StoredScale& stored, unsigned s) {
    const auto& [first, second] = stored.first.words;
    const float d = HalfBitsToFloat(static_cast<uint16_t>(first));
    if constexpr (kHasScales6) {
      return ScaleOf6(stored, s);
    } else if constexpr (kFormat == DType::kQ6_K) {
      return {d * IntegerToFloat(static_cast<int8_t>(second & 0xff)),
              d * IntegerToFloat(static_cast<int8_t>(second >> 8))};
    } else {
      return {d, HalfBitsToFloat(static_cast<uint16_t>(second))};
    }
  }

  PAGEMILL_DEVICE static void Decode(const Stored& stored, unsigned s, unsigned eighth,
                                     const ChunkScale& scale, float (&to)[kWeightsAtOnce]) {
    float d = scale.scale;
    if (kFormat == DType::kQ6_K && eighth >= 2) d = scale.other;
    const EightBytes integers = Integers(stored, s, eighth);
    PAGEMILL_UNROLL
    for (int i = 0; i < kWeightsAtOnce; ++i) {
      const float q = integers.Number(i, kOrigin);
      to[i] = kHasScales6 || kFormat == DType::kQ4_1 ? fmaf(q, d, scale.other) : q * d;
    }
  }

 private:
  // A scale and a minimum have 6 bits each: bytes 4 to 15 of the block, after its two factors.
  PAGEMILL_DEVICE static ChunkScale ScaleOf6(const StoredScale& stored, unsigned s) {
    static_assert(ops::kQ45KScalesOffset == 4);
    const auto& [first, last] = stored;
    const int shift = static_cast<int>(8 * (s % 4));
    const uint32_t a = first.words[1] >> shift, b = last.words[0] >> shift;
    const uint32_t c = last.words[1] >> shift;
    const uint32_t scale = s < 4 ? a & 63 : (c & 15) | (a >> 2 & 48);
    const uint32_t minimum = s < 4 ? b & 63 : (c >> 4 & 15) | (b >> 2 & 48);
    const float d = HalfBitsToFloat(static_cast<uint16_t>(first.words[0]));
    const float of_minimum = HalfBitsToFloat(static_cast<uint16_t>(first.words[0] >> 16));
    return {d * IntegerToFloat(static_cast<int32_t>(scale)),
            -(of_minimum * IntegerToFloat(static_cast<int32_t>(minimum)))};
  }

  // What is subtracted from Integers().
  static constexpr int kOrigin = kFormat == DType::kQ8_0   ? 128
                                 : kFormat == DType::kQ6_K ? 32
                                 : kFormat == DType::kQ5_0 ? 16
                                 : kFormat == DType::kQ4_0 ? 8
                                                           : 0;

  // A byte for each column.
  PAGEMILL_DEVICE static EightBytes Integers(const Stored& stored, unsigned s, unsigned eighth) {
    EightBytes to;
    PAGEMILL_UNROLL
    for (int i = 0; i < 2; ++i) {
      const uint32_t quants = stored.quants.words[i];
      if constexpr (kFormat == DType::kQ8_0) {
        to.words[i] = quants ^ 0x80808080u;
      } else if constexpr (kFormat == DType::kQ6_K) {
        to.words[i] = (quants >> s % 4 / 2 * 4 & 0x0f0f0f0fu) |
                      (stored.high.words[i] >> s % 4 * 2 & 0x03030303u) << 4;
      } else if constexpr (kFormat == DType::kQ5_K) {
        to.words[i] = (quants >> s % 2 * 4 & 0x0f0f0f0fu) |
                      (stored.high.words[i] >> s & 0x01010101u) << 4;
      } else if constexpr (kFormat == DType::kQ4_K) {
        to.words[i] = quants >> s % 2 * 4 & 0x0f0f0f0fu;
      } else {
        to.words[i] = quants >> eighth / 2 * 4 & 0x0f0f0f0fu;
        if constexpr (kFormat == DType::kQ5_0) {
          const uint32_t fifths = stored.high.words[0] >> (8 * eighth + 4 * i) & 15;
          to.words[i] |= (fifths * 0x00204081u & 0x01010101u) << 4;  // a bit for each byte
        }
      }
    }
    return to;
  }
};

// Of rows that BlockReader reads fastest.
template <DType kFormat>
inline constexpr int kBlockAlignment =
    kFormat == DType::kQ4_K || kFormat == DType::kQ5_K ? 16 : kFormat == DType::kQ4_1 ? 4 : 2;

// Columns [first, first + count) of the row at `row`: `first` is a multiple of 8, and `count` is 8,
// or less at the end of a row. Those beyond are 0. Blocks begin at multiples of kAlignment bytes.
template <DType kFormat, int kAlignment>
PAGEMILL_DEVICE void LoadWeights(const uint8_t* row, int64_t first, int count,
                                 float (&to)[kWeightsAtOnce]) {
  if constexpr (kFormat == DType::kF32) {
    LoadElements(reinterpret_cast<const float*>(row) + first, count, to);
  } else if constexpr (kFormat == DType::kBF16) {
    LoadElements(reinterpret_cast<const BFloat16*>(row) + first, count, to);
  } else if constexpr (kFormat == DType::kF16) {
    LoadElements(reinterpret_cast<const Half*>(row) + first, count, to);
  } else {
    using Reader = BlockReader<kFormat, kAlignment>;
    const ChunkOfSpan chunk = ChunkOfSpan::At(first);
    const uint8_t* const block = Reader::BlockOf(row, chunk);
    const unsigned s = Reader::InBlock(chunk);
    const auto eighth = static_cast<unsigned>(first % kChunkColumns / kWeightsAtOnce);
    Reader::Decode(Reader::LoadStored(block, s, eighth), s, eighth,
                   Reader::ScaleOf(Reader::LoadScale(block, s), s), to);
  }
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_LINEAR_WEIGHT_ROW_H_
