#include "cc/program/weights/assemble.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>

#include "cc/ops/block_format/block_layout.h"
#include "cc/program/assembly.h"
#include "cc/program/operand_views.h"
#include "cc/tensor/float16.h"

namespace pagemill::program {
namespace {

constexpr int64_t kTileRows = 128;  // of AWQ: a cache line of words
// Rows of the 8 integers of a word of AWQ, from the lowest bits, and where each row lies.
constexpr std::array<int64_t, 8> kAwqRows = {0, 2, 4, 6, 1, 3, 5, 7};
constexpr std::array<int64_t, 8> kAwqPlaces = {0, 4, 1, 5, 2, 6, 3, 7};

// The integers of kAssemblyBlock columns of kTileRows rows, row after row.
using Tile = std::array<uint8_t, kTileRows * kAssemblyBlock>;

// The tensors of one assembly.
struct Source {
  Assembly assembly;
  PackedShape shape;
  int64_t words = 0;  // integers in a word
  TensorView values, scales, zeros, groups;

  uint32_t Integer(uint32_t word, int64_t place) const {
    return word >> (place * assembly.bits) & ((1u << assembly.bits) - 1);
  }

  int64_t Group(int64_t column) const {
    return groups.rank > 0 ? groups.Data<const int32_t>()[column] : column / assembly.group;
  }

  float Scale(int64_t row, int64_t group) const {
    const bool by_rows = assembly.layout == PackedLayout::kPackQuantized;
    const int64_t i = by_rows ? row * shape.groups + group : group * shape.rows + row;
    if (scales.dtype == DType::kF32) return scales.Data<const float>()[i];
    const uint16_t bits = scales.Data<const uint16_t>()[i];
    return scales.dtype == DType::kF16 ? F16ToFloat(bits) : Bf16ToFloat(bits);
  }

  int32_t Zero(int64_t row, int64_t group) const {
    if (zeros.rank == 0) return 1 << (assembly.bits - 1);
    const uint32_t* data = zeros.Data<const uint32_t>();
    const int64_t place = row % words;
    const auto word_of = [&] { return data[group * (shape.rows / words) + row / words]; };
    switch (assembly.layout) {
      case PackedLayout::kAwq:
        return static_cast<int32_t>(Integer(word_of(), kAwqPlaces[static_cast<size_t>(place)]));
      case PackedLayout::kGptq:  // 0 is stored as the largest integer
        return static_cast<int32_t>(Integer(word_of(), place) + 1) & ((1 << assembly.bits) - 1);
      case PackedLayout::kGptqV2:
        return static_cast<int32_t>(Integer(word_of(), place));
      case PackedLayout::kPackQuantized:
        break;
    }
    return static_cast<int32_t>(Integer(data[row / words * shape.groups + group], place));
  }

  // Integers of the block at `column` of `count` rows from `row`, a multiple of kTileRows.
  void Unpack(int64_t row, int64_t count, int64_t column, Tile* tile) const;
};

void Source::Unpack(int64_t row, int64_t count, int64_t column, Tile* tile) const {
  uint8_t* out = tile->data();
  if (assembly.layout == PackedLayout::kAwq) {
    std::array<uint32_t, kAssemblyBlock> column_words;
    for (int64_t w = 0; w < count / 8; ++w) {
      for (int64_t k = 0; k < kAssemblyBlock; ++k) {
        column_words[static_cast<size_t>(k)] = values.Row<const uint32_t>(column + k)[row / 8 + w];
      }
      for (int i = 0; i < 8; ++i) {
        uint8_t* out_row = out + (w * 8 + kAwqRows[static_cast<size_t>(i)]) * kAssemblyBlock;
        for (size_t k = 0; k < column_words.size(); ++k) {
          out_row[k] = static_cast<uint8_t>(column_words[k] >> (4 * i) & 15);
        }
      }
    }
    return;
  }
  const bool by_rows = assembly.layout == PackedLayout::kPackQuantized;
  for (int64_t w = 0; w < kAssemblyBlock / words; ++w) {
    const int64_t at = column / words + w;
    for (int64_t r = 0; r < count; ++r) {
      const uint32_t word = by_rows ? values.Row<const uint32_t>(row + r)[at]
                                    : values.Row<const uint32_t>(at)[row + r];
      for (int64_t i = 0; i < words; ++i) {
        out[r * kAssemblyBlock + w * words + i] = static_cast<uint8_t>(Integer(word, i));
      }
    }
  }
}

// A block of a row in the format of `dtype`.
void WriteBlock(DType dtype, const uint8_t* integers, float scale, int32_t zero, uint8_t* out) {
  const ops::BlockLayout layout = ops::LayoutOf(dtype);
  const uint16_t d = FloatToF16(scale);
  ops::StoreLe16(out, d);
  if (dtype == DType::kQ4_1) {
    ops::StoreLe16(out + 2, FloatToF16(-F16ToFloat(d) * static_cast<float>(zero)));
  }
  uint8_t* quants = out + layout.quants;
  if (dtype == DType::kQ8_0) {
    for (int64_t i = 0; i < kAssemblyBlock; ++i) quants[i] = integers[i] ^ 0x80;  // q - 128
  } else {
    for (int64_t i = 0; i < kAssemblyBlock / 2; ++i) {
      quants[i] = static_cast<uint8_t>(integers[i] | integers[i + kAssemblyBlock / 2] << 4);
    }
  }
}

void WriteBf16(const Source& source, int64_t row, int64_t column, const uint8_t* integers,
               uint8_t* out) {
  for (int64_t i = 0; i < kAssemblyBlock; ++i) {
    const int64_t group = source.Group(column + i);
    const int32_t steps = integers[i] - source.Zero(row, group);
    const uint16_t bits = FloatToBf16(source.Scale(row, group) * static_cast<float>(steps));
    std::memcpy(out + i * 2, &bits, sizeof(bits));
  }
}

// Rows `tile` * kTileRows and on of the checkpoint's matrix, those of them that the weight has.
void AssembleTile(const Source& source, const TensorView& target, int64_t tile) {
  const int64_t begin = tile * kTileRows;
  const int64_t count = std::min(kTileRows, source.shape.rows - begin);
  const int64_t first = std::max(begin, source.assembly.first_row);
  const int64_t end = std::min(begin + count, source.assembly.first_row + target.shape[0]);
  const bool plain = target.dtype == DType::kBF16;
  const int64_t block_bytes = RowBytes(target.dtype, kAssemblyBlock);
  Tile integers;
  for (int64_t k = 0; k < target.shape[1]; k += kAssemblyBlock) {
    const int64_t column = source.assembly.first_column + k;
    source.Unpack(begin, count, column, &integers);
    for (int64_t row = first; row < end; ++row) {
      uint8_t* out =
          target.Row<uint8_t>(row - source.assembly.first_row) + k / kAssemblyBlock * block_bytes;
      const uint8_t* of_row = integers.data() + (row - begin) * kAssemblyBlock;
      if (plain) {
        WriteBf16(source, row, column, of_row, out);
      } else {
        const int64_t group = source.Group(column);
        WriteBlock(target.dtype, of_row, source.Scale(row, group), source.Zero(row, group), out);
      }
    }
  }
}

std::string Text(float value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%g", static_cast<double>(value));
  return text.data();
}

Status CheckNumbers(const Source& source, const Value& weight) {
  const std::string prefix = "weight '" + weight.name + "' ";
  for (int64_t k = 0; source.groups.rank > 0 && k < source.shape.columns; ++k) {
    const int64_t group = source.Group(k);
    if (group >= 0 && group < source.shape.groups) continue;
    return DataLoss(prefix + "has group " + std::to_string(group) + " for column " +
                    std::to_string(k) + ", of " + std::to_string(source.shape.groups));
  }
  float largest = 0;
  for (int64_t row = 0; row < source.shape.rows; ++row) {
    for (int64_t group = 0; group < source.shape.groups; ++group) {
      const float scale = source.Scale(row, group);
      if (!std::isfinite(scale)) {
        return DataLoss(prefix + "has a scale that is no number, of row " + std::to_string(row) +
                        " and group " + std::to_string(group));
      }
      largest = std::max(largest, std::fabs(scale));
    }
  }
  if (weight.dtype == DType::kBF16) return OkStatus();
  const float limit = weight.dtype == DType::kQ4_1 ? 65504.0f / 16 : 65504.0f;
  const bool small = source.scales.dtype != DType::kF16 && largest > 0 && largest < 0x1p-17f;
  if (largest <= limit && !small) return OkStatus();
  return Unimplemented(prefix + "has scales up to " + Text(largest) +
                       ", which f16 does not hold well enough: from " + (small ? "2^-17" : "0") +
                       " to " + Text(limit) + " work");
}

}  // namespace

Status Assemble(const Program& program, ValueId weight, const Weights& weights, std::byte* target,
                device::ThreadPool& pool) {
  const Value& value = program.value(weight);
  Source source;
  source.assembly = *value.assembly;
  source.shape = PackedShapeOf(source.assembly, program.value(source.assembly.values).shape);
  source.words = 32 / source.assembly.bits;
  const auto view = [&](ValueId id) {
    if (id == kNoValue) return TensorView{};
    return MakeView(program.value(id), {}, const_cast<std::byte*>(weights.data(id)));
  };
  source.values = view(source.assembly.values);
  source.scales = view(source.assembly.scales);
  source.zeros = view(source.assembly.zeros);
  source.groups = view(source.assembly.groups);
  PM_RETURN_IF_ERROR(CheckNumbers(source, value));
  const TensorView out = MakeView(value, {}, target);
  const int64_t first = source.assembly.first_row / kTileRows;
  const int64_t end = (source.assembly.first_row + out.shape[0] + kTileRows - 1) / kTileRows;
  pool.ParallelFor(end - first, 1, [&](int64_t from, int64_t to, int) {
    for (int64_t tile = first + from; tile < first + to; ++tile) AssembleTile(source, out, tile);
  });
  return OkStatus();
}

}  // namespace pagemill::program
