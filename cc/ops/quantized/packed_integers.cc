#include "cc/ops/quantized/packed_integers.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <string>

#include "cc/ops/block_format/block_layout.h"
#include "cc/ops/block_format/nibble_tables.h"
#include "cc/ops/quantized/converted_blocks.h"
#include "cc/tensor/float16.h"
#include "cc/tensor/float8.h"

namespace pagemill::ops {
namespace {

// Rows of the 8 integers of an AWQ word, from the lowest bits, and the inverse order.
constexpr std::array<int64_t, 8> kAwqRows = {0, 2, 4, 6, 1, 3, 5, 7};
constexpr std::array<int64_t, 8> kAwqPlaces = {0, 4, 1, 5, 2, 6, 3, 7};

// Half of 2^(s - 127).
float Mxfp4Scale(uint8_t s) {
  return s == 255 ? std::numeric_limits<float>::quiet_NaN() : std::ldexp(1.0f, s - 128);
}

// How much larger integers of nvfp4 are in q8_0 than floats that are doubled: up to 12 fits.
constexpr int32_t kNvfp4Steps = 10;

// The zero point of q8_0 as WriteBlock() takes it.
constexpr int32_t kZeroOf8Bits = 128;

void WriteNibbles(const uint8_t* integers, uint8_t* out) {
  for (int64_t i = 0; i < kPackedBlock / 2; ++i) {
    out[i] = static_cast<uint8_t>(integers[i] | integers[i + kPackedBlock / 2] << 4);
  }
}

// Writes a block of a row in the format of `dtype`.
void WriteBlock(DType dtype, const uint8_t* integers, float scale, int32_t zero, uint8_t* out) {
  const BlockLayout layout = LayoutOf(dtype);
  const uint16_t d = FloatToF16(scale);
  StoreLe16(out, d);
  if (dtype == DType::kQ4_1) {
    StoreLe16(out + 2, FloatToF16(-F16ToFloat(d) * static_cast<float>(zero)));
  }
  uint8_t* quants = out + layout.quants;
  if (dtype == DType::kQ8_0) {
    for (int64_t i = 0; i < kPackedBlock; ++i) quants[i] = integers[i] ^ 0x80;  // q - 128
  } else {
    WriteNibbles(integers, quants);
  }
}

std::string Text(float value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%g", static_cast<double>(value));
  return text.data();
}

int64_t RoundUp(int64_t bytes) { return (bytes + 63) / 64 * 64; }

int64_t RowsOf(const TensorView& weight) {
  return weight.shape[static_cast<size_t>(weight.rank - 2)];
}
int64_t ColumnsOf(const TensorView& weight) {
  return weight.shape[static_cast<size_t>(weight.rank - 1)];
}

}  // namespace

// The integers, or codes of 4 bits, of kPackedBlock columns, row after row: kTileRows rows, which
// may begin and end inside a word.
struct PackedIntegers::Tile {
  std::array<uint8_t, (kTileRows + 16) * kPackedBlock> integers;
};

DType BlockDTypeOf(const TensorView& w) {
  if (IsConvertedFormat(w.dtype)) return ConvertedDType(w.dtype);
  if (!HasPackedIntegers(w)) return w.dtype;
  if (HasFp4(w.parts->format)) return DType::kQ8_0;
  const bool has_zeros = w.parts->zeros.rank != 0;
  if (w.parts->groups.rank != 0 || (w.dtype == DType::kU8 && has_zeros)) return DType::kBF16;
  if (w.dtype == DType::kU8) return DType::kQ8_0;
  return has_zeros ? DType::kQ4_1 : DType::kQ4_0;
}

DType SliceDTypeOf(const TensorView& w) {
  if (IsConvertedFormat(w.dtype)) return SliceDType(w.dtype);
  if (!HasPackedIntegers(w) || !HasFp4(w.parts->format)) return BlockDTypeOf(w);
  const bool is_mxfp4 = w.parts->format.layout == QuantizedLayout::kMxfp4;
  return is_mxfp4 ? DType::kMxfp4 : kNvfp4Blocks;
}

int64_t ConvertedRowBytes(DType dtype, int64_t columns) {
  if (dtype == kNvfp4Blocks) return columns / kNvfp4BlockElements * kNvfp4BlockBytes;
  return RowBytes(dtype, columns);
}

TensorView AsBlocks(const TensorView& weight) {
  TensorView view = weight;
  view.dtype = BlockDTypeOf(weight);
  view.parts = nullptr;
  const int64_t bytes = RowBytes(view.dtype, view.RowElements());
  view.row_stride_bytes = view.rank == 2 ? bytes : RoundUp(bytes);
  return view;
}

PackedIntegers::PackedIntegers(const TensorView& weight, int64_t matrix)
    : format_(weight.parts->format),
      bits_(weight.dtype == DType::kU4 ? 4 : 8),
      words_(32 / bits_),
      columns_(ColumnsOf(weight)),
      values_(PartOf(weight, weight.parts->values, matrix)),
      scales_(PartOf(weight, weight.parts->scales, matrix)),
      zeros_(PartOf(weight, weight.parts->zeros, matrix)),
      groups_(PartOf(weight, weight.parts->groups, matrix)) {
  format_.first_row += matrix * format_.row_step;
  shape_ = PackedShapeOf(format_, weight.dtype, values_);
  if (format_.layout == QuantizedLayout::kNvfp4) {
    factor_ = *PartOf(weight, weight.parts->factor, matrix).Data<const float>();
  }
}

uint32_t PackedIntegers::Integer(uint32_t word, int64_t place) const {
  return word >> (place * bits_) & ((1u << bits_) - 1);
}

int64_t PackedIntegers::Group(int64_t column) const {
  return groups_.rank > 0 ? groups_.Data<const int32_t>()[column] : column / format_.block_columns;
}

float PackedIntegers::Scale(int64_t row, int64_t group) const {
  const int64_t i =
      IsByRows(format_) ? row * shape_.groups + group : group * shape_.rows + row;
  if (format_.layout == QuantizedLayout::kMxfp4) {
    return Mxfp4Scale(scales_.Data<const uint8_t>()[i]);
  }
  if (format_.layout == QuantizedLayout::kNvfp4) {
    return 0.5f * (F8E4M3ToFloat(scales_.Data<const uint8_t>()[i]) * factor_);
  }
  if (scales_.dtype == DType::kF32) return scales_.Data<const float>()[i];
  const uint16_t bits = scales_.Data<const uint16_t>()[i];
  return scales_.dtype == DType::kF16 ? F16ToFloat(bits) : Bf16ToFloat(bits);
}

int32_t PackedIntegers::Zero(int64_t row, int64_t group) const {
  if (HasFp4(format_)) return 0;
  if (zeros_.rank == 0) return 1 << (bits_ - 1);
  const uint32_t* data = zeros_.Data<const uint32_t>();
  const int64_t place = row % words_;
  const auto word_of = [&] { return data[group * (shape_.rows / words_) + row / words_]; };
  switch (format_.layout) {
    case QuantizedLayout::kAwq:
      return static_cast<int32_t>(Integer(word_of(), kAwqPlaces[static_cast<size_t>(place)]));
    case QuantizedLayout::kGptq:  // 0 is stored as the largest integer
      return static_cast<int32_t>(Integer(word_of(), place) + 1) & ((1 << bits_) - 1);
    case QuantizedLayout::kGptqV2:
      return static_cast<int32_t>(Integer(word_of(), place));
    case QuantizedLayout::kPackQuantized:
    case QuantizedLayout::kMxfp4:
    case QuantizedLayout::kNvfp4:
    case QuantizedLayout::kScaled:
      break;
  }
  return static_cast<int32_t>(Integer(data[row / words_ * shape_.groups + group], place));
}

int32_t PackedIntegers::ValueAt(int64_t row, int64_t column) const {
  switch (format_.layout) {
    case QuantizedLayout::kAwq:
      return static_cast<int32_t>(Integer(values_.Row<const uint32_t>(column)[row / 8],
                                          kAwqPlaces[static_cast<size_t>(row % 8)]));
    case QuantizedLayout::kGptq:
    case QuantizedLayout::kGptqV2:
      return static_cast<int32_t>(
          Integer(values_.Row<const uint32_t>(column / words_)[row], column % words_));
    case QuantizedLayout::kPackQuantized:
    case QuantizedLayout::kMxfp4:
    case QuantizedLayout::kNvfp4:
    case QuantizedLayout::kScaled:
      break;
  }
  const uint32_t q = Integer(values_.Row<const uint32_t>(row)[column / words_], column % words_);
  return HasFp4(format_) ? kE2m1Doubled[q] : static_cast<int32_t>(q);
}

// Unpacks the integers of the block at `column` of `count` rows from `row` on; for AWQ whole words.
void PackedIntegers::Unpack(int64_t row, int64_t count, int64_t column, Tile* tile) const {
  uint8_t* out = tile->integers.data();
  if (format_.layout == QuantizedLayout::kAwq) {
    std::array<uint32_t, kPackedBlock> column_words;
    for (int64_t w = 0; w < count / 8; ++w) {
      for (int64_t k = 0; k < kPackedBlock; ++k) {
        column_words[static_cast<size_t>(k)] = values_.Row<const uint32_t>(column + k)[row / 8 + w];
      }
      for (int i = 0; i < 8; ++i) {
        uint8_t* out_row = out + (w * 8 + kAwqRows[static_cast<size_t>(i)]) * kPackedBlock;
        for (size_t k = 0; k < column_words.size(); ++k) {
          out_row[k] = static_cast<uint8_t>(column_words[k] >> (4 * i) & 15);
        }
      }
    }
    return;
  }
  const bool by_rows = IsByRows(format_);
  for (int64_t w = 0; w < kPackedBlock / words_; ++w) {
    const int64_t at = column / words_ + w;
    for (int64_t r = 0; r < count; ++r) {
      const uint32_t word = by_rows ? values_.Row<const uint32_t>(row + r)[at]
                                    : values_.Row<const uint32_t>(at)[row + r];
      for (int64_t i = 0; i < words_; ++i) {
        out[r * kPackedBlock + w * words_ + i] = static_cast<uint8_t>(Integer(word, i));
      }
    }
  }
}

void PackedIntegers::WriteBf16(int64_t row, int64_t column, const uint8_t* integers,
                               uint8_t* out) const {
  for (int64_t i = 0; i < kPackedBlock; ++i) {
    const int64_t group = Group(column + i);
    const int32_t steps = integers[i] - Zero(row, group);
    const uint16_t bits = FloatToBf16(Scale(row, group) * static_cast<float>(steps));
    std::memcpy(out + i * 2, &bits, sizeof(bits));
  }
}

// A group is a block of mxfp4, or of q8_0.
void PackedIntegers::WriteMxfp4(DType dtype, int64_t row, int64_t column, const uint8_t* codes,
                                uint8_t* out) const {
  const int64_t group = Group(column);
  if (dtype == DType::kMxfp4) {
    *out = scales_.Data<const uint8_t>()[row * shape_.groups + group];
    return WriteNibbles(codes, out + 1);
  }
  std::array<uint8_t, kPackedBlock> integers;
  for (size_t i = 0; i < integers.size(); ++i) {
    integers[i] = static_cast<uint8_t>(kZeroOf8Bits + kE2m1Doubled[codes[i]]);
  }
  WriteBlock(dtype, integers.data(), Scale(row, group), kZeroOf8Bits, out);
}

// Two groups become one block, of codes or of q8_0.
void PackedIntegers::WriteNvfp4(DType dtype, int64_t row, int64_t column, const uint8_t* codes,
                                uint8_t* out) const {
  static_assert(kPackedBlock == 2 * kNvfp4Group && kPackedBlock == kNvfp4BlockElements);
  const int64_t group = Group(column);
  const std::array<float, 2> scales = {Scale(row, group), Scale(row, group + 1)};
  if (dtype == kNvfp4Blocks) {
    StoreLe16(out, FloatToF16(scales[0]));
    StoreLe16(out + 2, FloatToF16(scales[1]));
    return WriteNibbles(codes, out + 4);
  }
  const float largest = std::max(std::fabs(scales[0]), std::fabs(scales[1]));
  // Rounded to f16 first, so that integers are relative to the stored scale.
  const float d = F16ToFloat(FloatToF16(largest / kNvfp4Steps));
  std::array<uint8_t, kPackedBlock> rounded;
  for (size_t i = 0; i < rounded.size(); ++i) {
    const auto doubled = static_cast<float>(kE2m1Doubled[codes[i]]);
    const float steps = d == 0 ? 0 : doubled * (scales[i / kNvfp4Group] / d);
    rounded[i] = static_cast<uint8_t>(
        kZeroOf8Bits + static_cast<int32_t>(std::lround(std::clamp(steps, -127.0f, 127.0f))));
  }
  WriteBlock(DType::kQ8_0, rounded.data(), d, kZeroOf8Bits, out);
}

void PackedIntegers::ReadRow(int64_t row, float* out) const {
  const int64_t source_row = format_.first_row + row;
  int64_t group = -1;  // of the column before
  int32_t zero = 0;
  float scale = 0;
  for (int64_t k = 0; k < columns_; ++k) {
    const int64_t column = format_.first_column + k;
    if (group != Group(column)) {
      group = Group(column);
      zero = Zero(source_row, group);
      scale = Scale(source_row, group);
    }
    out[k] = scale * static_cast<float>(ValueAt(source_row, column) - zero);
  }
}

void PackedIntegers::WriteRows(DType dtype, int64_t begin, int64_t end, uint8_t* out) const {
  // AWQ words hold 8 rows.
  const int64_t first = format_.first_row + begin, last = format_.first_row + end;
  const int64_t unpacked = first / 8 * 8;
  const int64_t count = std::min((last + 7) / 8 * 8, shape_.rows) - unpacked;
  const int64_t block_bytes = ConvertedRowBytes(dtype, kPackedBlock);
  const int64_t row_bytes = ConvertedRowBytes(dtype, columns_);
  Tile tile;
  for (int64_t k = 0; k < columns_; k += kPackedBlock) {
    const int64_t column = format_.first_column + k;
    Unpack(unpacked, count, column, &tile);
    for (int64_t row = first; row < last; ++row) {
      uint8_t* to = out + (row - first) * row_bytes + k / kPackedBlock * block_bytes;
      const uint8_t* of_row = tile.integers.data() + (row - unpacked) * kPackedBlock;
      if (dtype == DType::kBF16) {
        WriteBf16(row, column, of_row, to);
      } else if (format_.layout == QuantizedLayout::kMxfp4) {
        WriteMxfp4(dtype, row, column, of_row, to);
      } else if (format_.layout == QuantizedLayout::kNvfp4) {
        WriteNvfp4(dtype, row, column, of_row, to);
      } else {
        const int64_t group = Group(column);
        WriteBlock(dtype, of_row, Scale(row, group), Zero(row, group), to);
      }
    }
  }
}

Status PackedIntegers::CheckNumbers() const {
  for (int64_t k = 0; groups_.rank > 0 && k < shape_.columns; ++k) {
    const int64_t group = Group(k);
    if (group >= 0 && group < shape_.groups) continue;
    return DataLoss("has group " + std::to_string(group) + " for column " + std::to_string(k) +
                    ", of " + std::to_string(shape_.groups));
  }
  for (int64_t row = 0; row < shape_.rows; ++row) {
    for (int64_t group = 0; group < shape_.groups; ++group) {
      if (std::isfinite(Scale(row, group))) continue;
      return DataLoss("has a scale that is not finite, of row " + std::to_string(row) +
                      " and group " + std::to_string(group));
    }
  }
  return OkStatus();
}

Status PackedIntegers::CheckBlocks(DType dtype) const {
  PAGEMILL_RETURN_IF_ERROR(CheckNumbers());
  if (dtype == DType::kBF16 || dtype == DType::kMxfp4) return OkStatus();
  float largest = 0;
  for (int64_t row = 0; row < shape_.rows; ++row) {
    for (int64_t group = 0; group < shape_.groups; ++group) {
      largest = std::max(largest, std::fabs(Scale(row, group)));
    }
  }
  const bool is_stretched = format_.layout == QuantizedLayout::kNvfp4 && dtype == DType::kQ8_0;
  if (is_stretched) largest /= kNvfp4Steps;  // as it is stored
  const float limit = dtype == DType::kQ4_1 ? 65504.0f / 16 : 65504.0f;
  const bool small = scales_.dtype != DType::kF16 && largest > 0 && largest < 0x1p-17f;
  if (largest <= limit && !small) return OkStatus();
  return Unimplemented("has scales up to " + Text(largest) +
                       ", which f16 does not hold well enough: from " + (small ? "2^-17" : "0") +
                       " to " + Text(limit) + " work");
}

ConvertedMatrix::ConvertedMatrix(const TensorView& weight, int64_t matrix, DType dtype)
    : rows_(weight), dtype_(dtype) {
  if (HasPackedIntegers(weight)) {
    integers_.emplace(weight, matrix);
  } else if (weight.rank == 3) {
    rows_ = TensorView::Dense(const_cast<uint8_t*>(weight.Row<const uint8_t>(matrix)), weight.dtype,
                              {RowsOf(weight), ColumnsOf(weight)});
  }
}

Status ConvertedMatrix::Check() const {
  if (integers_) return integers_->CheckBlocks(dtype_);
  for (int64_t row = 0; row < rows_.shape[0]; ++row) {
    PAGEMILL_RETURN_IF_ERROR(
        CheckConvertible(rows_.dtype, dtype_, rows_.Row<const uint8_t>(row), rows_.shape[1]));
  }
  return OkStatus();
}

void ConvertedMatrix::WriteRows(int64_t begin, int64_t end, uint8_t* out) const {
  if (integers_) return integers_->WriteRows(dtype_, begin, end, out);
  const int64_t row_bytes = RowBytes(dtype_, rows_.shape[1]);
  for (int64_t row = begin; row < end; ++row, out += row_bytes) {
    ConvertRow(rows_.dtype, dtype_, rows_.Row<const uint8_t>(row), rows_.shape[1], out);
  }
}

int64_t BlockRowsBytes(const TensorView& weight) {
  const TensorView blocks = AsBlocks(weight);
  return RoundUp(blocks.shape[0] * blocks.row_stride_bytes);
}

Status PackBlockRows(const TensorView& weight, std::byte* packed, device::ThreadPool& pool) {
  const DType dtype = BlockDTypeOf(weight);
  const int64_t rows = RowsOf(weight), row_bytes = RowBytes(dtype, ColumnsOf(weight));
  const int64_t matrices = weight.rank == 2 ? 1 : weight.shape[0];
  uint8_t* out = reinterpret_cast<uint8_t*>(packed);
  for (int64_t e = 0; e < matrices; ++e, out += RoundUp(rows * row_bytes)) {
    const ConvertedMatrix matrix(weight, e, dtype);
    PAGEMILL_RETURN_IF_ERROR(matrix.Check());
    constexpr int64_t kRows = ConvertedMatrix::kTileRows;
    pool.ParallelFor((rows + kRows - 1) / kRows, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t t = begin; t < end; ++t) {
        matrix.WriteRows(t * kRows, std::min(rows, (t + 1) * kRows), out + t * kRows * row_bytes);
      }
    });
  }
  return OkStatus();
}

}  // namespace pagemill::ops
