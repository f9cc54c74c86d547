#include "cc/ops/linear/packed_blocks.h"

#include <cmath>
#include <cstring>

#include "cc/ops/block_format/block_layout.h"
#include "cc/tensor/float16.h"

namespace pagemill::ops::linear {
namespace {

// The values of a block, four per word, the first in the lowest byte.
using Quads = uint32_t[kQuads];

void StoreLe32(uint8_t* bytes, uint32_t value) {
  for (int i = 0; i < 4; ++i) bytes[i] = static_cast<uint8_t>(value >> (8 * i));
}

// Address of the word of row `row` in register `index` of its half, which has `registers`
// registers.
uint8_t* Word(uint8_t* field, int64_t row, int registers, int index) {
  return field + (row / kHalfSliceRows * registers + index) * 64 + row % kHalfSliceRows * 4;
}

void StoreNibbles(const Quads& quads, int64_t row, uint8_t* record) {
  for (int q = 0; q < 4; ++q) {
    StoreLe32(Word(record, row, 4, q),
              (quads[q] & 0x0f0f0f0fu) | ((quads[q + 4] & 0x0f0f0f0fu) << 4));
  }
}

// Bit `bit` of the values.
void StoreBits(const Quads& quads, int bit, int64_t row, uint8_t* field) {
  uint32_t bits = 0;
  for (int q = 0; q < kQuads; ++q) bits |= ((quads[q] >> bit) & 0x01010101u) << q;
  StoreLe32(Word(field, row, 1, 0), bits);
}

// Bits `bit` and `bit` + 1 of the values.
void StoreBitPairs(const Quads& quads, int bit, int64_t row, uint8_t* field) {
  for (int half = 0; half < 2; ++half) {
    uint32_t bits = 0;
    for (int q = 0; q < 4; ++q) {
      bits |= ((quads[4 * half + q] >> bit) & 0x03030303u) << (2 * q);
    }
    StoreLe32(Word(field, row, 2, half), bits);
  }
}

// 16 bytes of nibbles, the low ones first.
void LoadNibbles(const uint8_t* bytes, Quads& quads) {
  for (int q = 0; q < 4; ++q) {
    const uint32_t word = LoadLe32(bytes + 4 * q);
    quads[q] = word & 0x0f0f0f0fu;
    quads[q + 4] = (word >> 4) & 0x0f0f0f0fu;
  }
}

// Blocks of 32: one record per block.
template <DType kDType>
void PackBlock(const uint8_t* block, int64_t row, uint8_t* record) {
  constexpr PackedBlockLayout kLayout = PackedBlockLayoutOf(kDType);
  constexpr BlockLayout kBlock = LayoutOf(kDType);
  Quads quads;
  if constexpr (kDType == DType::kQ8_0) {
    for (int q = 0; q < kQuads; ++q) {
      StoreLe32(Word(record, row, kQuads, q),
                LoadLe32(block + kBlock.quants + 4 * q) ^ 0x80808080u);
    }
  } else {
    LoadNibbles(block + kBlock.quants, quads);
    if constexpr (kDType == DType::kQ5_0) {
      const uint32_t bits = LoadLe32(block + kBlock.high_bits);
      for (int q = 0; q < kQuads; ++q) {
        for (int i = 0; i < 4; ++i) quads[q] |= ((bits >> (4 * q + i)) & 1u) << (8 * i + 4);
      }
      StoreBits(quads, 4, row, record + kLayout.high_bits);
    }
    StoreNibbles(quads, row, record);
  }
  std::memcpy(record + kLayout.scales + 2 * row, block, 2);
  if constexpr (kLayout.minima != 0) std::memcpy(record + kLayout.minima + 2 * row, block + 2, 2);
}

// Codes of 4 bits behind a scale: an f16, of MXFP4 a byte s, which stands for 2^(s - 128), of NVFP4
// two f16.
template <DType kDType>
void PackCodes(const uint8_t* block, int64_t row, uint8_t* record) {
  constexpr PackedBlockLayout kLayout = PackedBlockLayoutOf(kDType);
  constexpr bool kHasByte = kDType == DType::kMxfp4, kHasTwo = kDType == kNvfp4Blocks;
  Quads quads;
  LoadNibbles(block + (kHasByte ? 1 : kHasTwo ? 4 : 2), quads);
  StoreNibbles(quads, row, record);
  uint8_t* const scales = record + kLayout.scales + 2 * row;
  StoreLe16(scales, kHasByte ? FloatToBf16(std::ldexp(1.0f, block[0] - 128)) : LoadLe16(block));
  if constexpr (kHasTwo) StoreLe16(scales + 2 * kSliceRows, LoadLe16(block + 2));
}

// Q4_K and Q5_K: a head and 8 records.
template <DType kDType>
void PackBlockWithMinima(const uint8_t* block, int64_t row, uint8_t* head) {
  constexpr PackedBlockLayout kLayout = PackedBlockLayoutOf(kDType);
  constexpr BlockLayout kBlock = LayoutOf(kDType);
  std::memcpy(head + 2 * row, block, 2);
  StoreLe16(head + 64 + 2 * row, LoadLe16(block + 2) ^ 0x8000u);
  uint32_t scales[4];
  UnpackScales6(block + kQ45KScalesOffset, scales);
  for (int s = 0; s < kSubBlocksOfK; ++s) {
    uint8_t* record = head + kLayout.head_bytes + s * kLayout.record_bytes;
    Quads quads;
    for (int q = 0; q < kQuads; ++q) {
      const uint32_t word = LoadLe32(block + kBlock.quants + 32 * (s / 2) + 4 * q);
      quads[q] = (word >> (4 * (s % 2))) & 0x0f0f0f0fu;
      if constexpr (kDType == DType::kQ5_K) {
        quads[q] |= ((LoadLe32(block + kBlock.high_bits + 4 * q) >> s) & 0x01010101u) << 4;
      }
    }
    StoreNibbles(quads, row, record);
    if constexpr (kDType == DType::kQ5_K) StoreBits(quads, 4, row, record + kLayout.high_bits);
    record[kLayout.scales + row] = static_cast<uint8_t>(scales[s / 4] >> (8 * (s % 4)));
    record[kLayout.minima + row] = static_cast<uint8_t>(scales[2 + s / 4] >> (8 * (s % 4)));
  }
}

void PackBlockQ6K(const uint8_t* block, int64_t row, uint8_t* head) {
  constexpr PackedBlockLayout kLayout = PackedBlockLayoutOf(DType::kQ6_K);
  std::memcpy(head + 2 * row, block + kQ6KScaleOffset, 2);
  for (int s = 0; s < kSubBlocksOfK; ++s) {
    uint8_t* record = head + kLayout.head_bytes + s * kLayout.record_bytes;
    const uint8_t* nibbles = block + 64 * (s / 4) + 32 * (s % 2);
    const uint8_t* pairs = block + kQ6_KLayout.high_bits + 32 * (s / 4);
    Quads quads;
    for (int q = 0; q < kQuads; ++q) {
      quads[q] = ((LoadLe32(nibbles + 4 * q) >> (4 * (s % 4 / 2))) & 0x0f0f0f0fu) |
                 (((LoadLe32(pairs + 4 * q) >> (2 * (s % 4))) & 0x03030303u) << 4);
    }
    StoreNibbles(quads, row, record);
    StoreBitPairs(quads, 4, row, record + kLayout.high_bits);
    record[kLayout.scales + row] = block[kQ6KScalesOffset + 2 * s];
    record[kLayout.scales + kSliceRows + row] = block[kQ6KScalesOffset + 2 * s + 1];
  }
}

void PackBlockQ3K(const uint8_t* block, int64_t row, uint8_t* head) {
  constexpr PackedBlockLayout kLayout = PackedBlockLayoutOf(DType::kQ3_K);
  std::memcpy(head + 2 * row, block + kQ3KScaleOffset, 2);
  for (int s = 0; s < kSubBlocksOfK; ++s) {
    uint8_t* record = head + kLayout.head_bytes + s * kLayout.record_bytes;
    const uint8_t* pairs = block + kQ3KPairsOffset + 32 * (s / 4);
    Quads quads;
    for (int q = 0; q < kQuads; ++q) {
      quads[q] = ((LoadLe32(pairs + 4 * q) >> (2 * (s % 4))) & 0x03030303u) |
                 (((LoadLe32(block + 4 * q) >> s) & 0x01010101u) << 2);
    }
    StoreBitPairs(quads, 0, row, record);
    StoreBits(quads, 2, row, record + kLayout.high_bits);
    for (int half = 0; half < 2; ++half) {
      record[kLayout.scales + half * kSliceRows + row] =
          static_cast<uint8_t>(Q3KScale(block, 2 * s + half));
    }
  }
}

struct BlockSize {
  int64_t elements, bytes;
};

BlockSize BlockSizeOf(DType dtype) {
  if (dtype == kNvfp4Blocks) return {kNvfp4BlockElements, kNvfp4BlockBytes};
  return {Info(dtype).block_elements, Info(dtype).block_bytes};
}

// Calls `pack` with the blocks of the rows, one after the other.
template <class Pack>
void PackRows(const StoredRows& source, int64_t count, uint8_t* slice, const Pack& pack) {
  const BlockSize block = BlockSizeOf(source.dtype);
  const PackedBlockLayout layout = PackedBlockLayoutOf(source.dtype);
  const int64_t step = layout.head_bytes == 0
                           ? layout.record_bytes
                           : layout.head_bytes + kRecordsPerHead * layout.record_bytes;
  for (int64_t row = 0; row < count; ++row) {
    const uint8_t* from = source.rows + row * source.stride;
    for (int64_t b = 0; b < source.k / block.elements; ++b) {
      pack(from + b * block.bytes, row, slice + b * step);
    }
  }
}

uint32_t LoadWord(const uint8_t* field, int64_t row, int registers, int index) {
  return LoadLe32(field + (row / kHalfSliceRows * registers + index) * 64 +
                  row % kHalfSliceRows * 4);
}

// The inverse of the Store functions.
template <DType kDType>
void LoadQuads(const uint8_t* record, int64_t row, Quads& quads) {
  constexpr PackedBlockLayout kLayout = PackedBlockLayoutOf(kDType);
  for (int q = 0; q < kQuads; ++q) {
    if constexpr (kDType == DType::kQ8_0) {
      quads[q] = LoadWord(record, row, kQuads, q);
      continue;
    }
    const uint8_t* high = record + kLayout.high_bits;
    if constexpr (kDType == DType::kQ3_K) {
      quads[q] = ((LoadWord(record, row, 2, q / 4) >> (2 * (q % 4))) & 0x03030303u) |
                 (((LoadWord(high, row, 1, 0) >> q) & 0x01010101u) << 2);
      continue;
    }
    quads[q] = (LoadWord(record, row, 4, q % 4) >> (q < 4 ? 0 : 4)) & 0x0f0f0f0fu;
    if constexpr (kDType == DType::kQ5_0 || kDType == DType::kQ5_K) {
      quads[q] |= ((LoadWord(high, row, 1, 0) >> q) & 0x01010101u) << 4;
    } else if constexpr (kDType == DType::kQ6_K) {
      quads[q] |= ((LoadWord(high, row, 2, q / 4) >> (2 * (q % 4))) & 0x03030303u) << 4;
    }
  }
}

float LoadF16(const uint8_t* from) { return F16ToFloat(LoadLe16(from)); }

// A value, or a code, as what is multiplied by its scale.
template <DType kDType>
int32_t Centred(int32_t value) {
  constexpr const NibbleTable* kTable = TableOf(kDType);
  if constexpr (kTable != nullptr) {
    return (*kTable)[static_cast<size_t>(value)];
  } else {
    return value - PackedBlockLayoutOf(kDType).zero_point;
  }
}

template <DType kDType>
void ReadRow(const uint8_t* slice, int64_t row, int64_t k, float* out) {
  constexpr PackedBlockLayout kLayout = PackedBlockLayoutOf(kDType);
  constexpr bool kHasHead = kLayout.head_bytes != 0;
  const uint8_t* head = slice;
  const uint8_t* record = slice;
  for (int64_t b = 0; b < k / kRecordElements;
       ++b, record += kLayout.record_bytes, out += kRecordElements) {
    if (kHasHead && b % kRecordsPerHead == 0) {
      head = record;
      record += kLayout.head_bytes;
    }
    Quads quads;
    LoadQuads<kDType>(record, row, quads);
    float scales[2];  // of each half of the block
    if constexpr (HasHalfScales(kDType)) {
      for (int half = 0; half < 2; ++half) {
        scales[half] = LoadF16(head + 2 * row) *
                       static_cast<float>(
                           static_cast<int8_t>(record[kLayout.scales + half * kSliceRows + row]));
      }
    } else {
      const uint8_t* const of_row = record + kLayout.scales + 2 * row;
      scales[0] = kHasHead
                      ? LoadF16(head + 2 * row) * static_cast<float>(record[kLayout.scales + row])
                  : kDType == DType::kMxfp4 ? Bf16ToFloat(LoadLe16(of_row))
                                            : LoadF16(of_row);
      scales[1] = kDType == kNvfp4Blocks ? LoadF16(of_row + 2 * kSliceRows) : scales[0];
    }
    for (int i = 0; i < kRecordElements; ++i) {
      const int32_t value = static_cast<int32_t>((quads[i / 4] >> (8 * (i % 4))) & 255u);
      out[i] = scales[i / 16] * static_cast<float>(Centred<kDType>(value));
    }
    if constexpr (kLayout.minima != 0) {
      const float minimum =
          kHasHead ? LoadF16(head + 64 + 2 * row) * static_cast<float>(record[kLayout.minima + row])
                   : LoadF16(record + kLayout.minima + 2 * row);
      for (int i = 0; i < kRecordElements; ++i) out[i] += minimum;
    }
  }
}

}  // namespace

void ReadPackedBlockRow(DType dtype, const uint8_t* slice, int64_t row, int64_t k, float* out) {
  WithSliceFormat(dtype, [&]<DType kDType>() { ReadRow<kDType>(slice, row, k, out); });
}

int64_t BlockSliceBytes(DType dtype, int64_t k) {
  const PackedBlockLayout layout = PackedBlockLayoutOf(dtype);
  const int64_t records = k / kRecordElements;
  return records * layout.record_bytes + records / kRecordsPerHead * layout.head_bytes;
}

void PackBlockSlice(const StoredRows& source, int64_t count, uint8_t* slice) {
  // Missing rows have scales of 0.
  if (count < kSliceRows) std::memset(slice, 0, BlockSliceBytes(source.dtype, source.k));
  WithSliceFormat(source.dtype, [&]<DType kDType>() {
    if constexpr (TableOf(kDType) != nullptr) {
      PackRows(source, count, slice, PackCodes<kDType>);
    } else if constexpr (kDType == DType::kQ3_K) {
      PackRows(source, count, slice, PackBlockQ3K);
    } else if constexpr (kDType == DType::kQ6_K) {
      PackRows(source, count, slice, PackBlockQ6K);
    } else if constexpr (kDType == DType::kQ4_K || kDType == DType::kQ5_K) {
      PackRows(source, count, slice, PackBlockWithMinima<kDType>);
    } else {
      PackRows(source, count, slice, PackBlock<kDType>);
    }
  });
}

}  // namespace pagemill::ops::linear
