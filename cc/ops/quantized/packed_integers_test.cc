#include "cc/ops/quantized/packed_integers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "cc/device/thread_pool.h"
#include "cc/ops/block_format/block_format.h"
#include "cc/ops/block_format/block_layout.h"
#include "cc/ops/block_format/nibble_tables.h"
#include "cc/ops/quantized/quantized.h"
#include "cc/tensor/float16.h"
#include "cc/tensor/float8.h"

namespace pagemill::ops {
namespace {

// A group-quantized matrix, unpacked.
struct Matrix {
  int64_t rows, columns, group;
  int32_t bits;
  std::vector<int32_t> q;        // [rows, columns]
  std::vector<int32_t> zeros;    // [rows, groups]
  std::vector<uint16_t> scales;  // f16 [rows, groups]

  int64_t groups() const { return (columns + group - 1) / group; }
};

Matrix Random(int64_t rows, int64_t columns, int64_t group, int32_t bits, bool zeros) {
  std::mt19937 random(static_cast<uint32_t>(rows * 131 + columns + bits));
  Matrix m{rows, columns, group, bits, {}, {}, {}};
  const auto integer = [&] { return static_cast<int32_t>(random() % (1u << bits)); };
  for (int64_t i = 0; i < rows * columns; ++i) m.q.push_back(integer());
  for (int64_t i = 0; i < rows * m.groups(); ++i) {
    m.zeros.push_back(zeros ? integer() : 1 << (bits - 1));
    const float scale = std::ldexp(1.0f + static_cast<float>(random() % 1000) / 1000, -8);
    m.scales.push_back(FloatToF16(random() % 7 == 0 ? -scale : scale));
  }
  return m;
}

// Row-major words of integer(i, j), packed along dimension `along`.
template <class F>
std::vector<uint32_t> Words(int64_t rows, int64_t columns, int32_t bits, bool along_rows,
                            const F& integer) {
  const int64_t p = 32 / bits;
  const int64_t word_rows = along_rows ? (rows + p - 1) / p : rows;
  const int64_t word_columns = along_rows ? columns : columns / p;
  std::vector<uint32_t> words(static_cast<size_t>(word_rows * word_columns));
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      const int64_t word = along_rows ? i / p * word_columns + j : i * word_columns + j / p;
      const uint32_t value = static_cast<uint32_t>(integer(i, j)) & ((1u << bits) - 1);
      words[static_cast<size_t>(word)] |= value << ((along_rows ? i : j) % p * bits);
    }
  }
  return words;
}

// A weight of a checkpoint with its tensors.
struct Stored {
  std::vector<uint32_t> values, zeros;
  std::vector<uint16_t> scales;
  std::vector<float> wide_scales;  // instead of `scales`, if not empty
  std::vector<int32_t> groups;
  QuantizedParts parts;
  TensorView weight;

  Stored() = default;
  Stored(const Stored&) = delete;

  // Views rows and columns of the matrix from `row` and `column` on.
  void View(int64_t rows, int64_t columns, int32_t bits) {
    parts.values.data = values.data();
    parts.zeros.data = zeros.data();
    parts.scales.data = wide_scales.empty() ? static_cast<void*>(scales.data())
                                            : static_cast<void*>(wide_scales.data());
    parts.groups.data = groups.data();
    weight =
        TensorView::Dense(values.data(), bits == 4 ? DType::kU4 : DType::kU8,
                          {rows - parts.format.first_row, columns - parts.format.first_column});
    weight.parts = &parts;
  }
};

// `index`: group of each column, or empty.
void Store(const Matrix& m, QuantizedLayout layout, bool zeros, const std::vector<int32_t>& index,
           Stored* c) {
  const int64_t n = m.rows, k = m.columns, g = m.groups(), p = 32 / m.bits;
  const auto q = [&](int64_t row, int64_t column) {
    return m.q[static_cast<size_t>(row * k + column)];
  };
  const auto zero = [&](int64_t row, int64_t group) {
    return m.zeros[static_cast<size_t>(row * g + group)] -
           (layout == QuantizedLayout::kGptq ? 1 : 0);
  };
  // AWQ: the row of the integer at index j.
  const auto awq = [](int64_t j) { return j / 8 * 8 + (j % 4 * 2 + j % 8 / 4); };
  const auto dense = [](DType dtype, int64_t a, int64_t b) {
    return TensorView::Dense(nullptr, dtype, {a, b});
  };
  c->parts.format.layout = layout;
  c->parts.format.block_columns = m.group;
  if (layout == QuantizedLayout::kPackQuantized) {
    c->values = Words(n, k, m.bits, false, q);
    c->parts.values = dense(DType::kI32, n, k / p);
    c->zeros = Words(n, g, m.bits, true, zero);
    c->parts.zeros = dense(DType::kI32, (n + p - 1) / p, g);
    c->scales = m.scales;
    c->parts.scales = dense(DType::kF16, n, g);
  } else {
    const auto q_turned = [&](int64_t i, int64_t j) { return q(j, i); };
    const auto zero_turned = [&](int64_t i, int64_t j) { return zero(j, i); };
    if (layout == QuantizedLayout::kAwq) {
      c->values = Words(k, n, 4, false, [&](int64_t i, int64_t j) { return q(awq(j), i); });
      c->parts.values = dense(DType::kI32, k, n / 8);
      c->zeros = Words(g, n, 4, false, [&](int64_t i, int64_t j) { return zero(awq(j), i); });
    } else {
      c->values = Words(k, n, m.bits, true, q_turned);
      c->parts.values = dense(DType::kI32, k / p, n);
      if (n % p == 0) c->zeros = Words(g, n, m.bits, false, zero_turned);
    }
    c->parts.zeros = dense(DType::kI32, g, n / p);
    for (int64_t j = 0; j < g; ++j) {
      for (int64_t i = 0; i < n; ++i) c->scales.push_back(m.scales[static_cast<size_t>(i * g + j)]);
    }
    c->parts.scales = dense(DType::kF16, g, n);
  }
  if (!zeros) c->parts.zeros = {};
  c->groups = index;
  if (!index.empty()) c->parts.groups = TensorView::Dense(nullptr, DType::kI32, {k});
}

// The weight in blocks, row by row.
StatusOr<std::vector<std::byte>> MakeBlocks(const TensorView& weight, int threads = 2) {
  EXPECT_TRUE(CheckWeight(weight).ok()) << CheckWeight(weight).ToString();
  device::ThreadPool pool({.num_threads = threads});
  const WeightPacking packing = BlockRows(0b10);
  std::vector<std::byte> bytes(static_cast<size_t>(packing.bytes(weight)), std::byte{0xa5});
  PAGEMILL_RETURN_IF_ERROR(packing.pack(weight, bytes.data(), pool));
  return bytes;
}

// Element (row, column) of the checkpoint.
float Exact(const Matrix& m, int64_t row, int64_t column, int64_t group) {
  const size_t at = static_cast<size_t>(row * m.groups() + group);
  const int32_t q = m.q[static_cast<size_t>(row * m.columns + column)];
  return F16ToFloat(m.scales[at]) * static_cast<float>(q - m.zeros[at]);  // 11 bits times 9
}

// The same element in blocks, bit for bit.
float Expected(const Matrix& m, DType dtype, int64_t row, int64_t column, int64_t group) {
  const size_t at = static_cast<size_t>(row * m.groups() + group);
  const float d = F16ToFloat(m.scales[at]);
  const float q = static_cast<float>(m.q[static_cast<size_t>(row * m.columns + column)]);
  const float zero = static_cast<float>(m.zeros[at]);
  if (dtype == DType::kQ4_1) return d * q + F16ToFloat(FloatToF16(-d * zero));
  const float exact = Exact(m, row, column, group);
  return dtype == DType::kBF16 ? Bf16ToFloat(FloatToBf16(exact)) : exact;
}

// Converts rows and columns from `row` and `column` on to blocks and compares every element; also
// reads every row as floats.
void CheckBlocks(const Matrix& m, QuantizedLayout layout, DType dtype, bool zeros, int64_t row = 0,
                 int64_t column = 0, const std::vector<int32_t>& index = {}) {
  const int64_t rows = m.rows - row, columns = m.columns - column;
  SCOPED_TRACE(std::string(NameOf(layout)) + " " + std::to_string(m.rows) + "," +
               std::to_string(m.columns) + " from " + std::to_string(row) + "," +
               std::to_string(column));
  Stored stored;
  Store(m, layout, zeros, index, &stored);
  stored.parts.format.first_row = row;
  stored.parts.format.first_column = column;
  stored.View(m.rows, m.columns, m.bits);
  const TensorView blocks = AsBlocks(stored.weight);
  EXPECT_EQ(blocks.dtype, dtype);
  EXPECT_EQ(blocks.parts, nullptr);
  const StatusOr<std::vector<std::byte>> bytes = MakeBlocks(stored.weight);
  ASSERT_TRUE(bytes.ok()) << bytes.status().ToString();
  EXPECT_EQ(*bytes, *MakeBlocks(stored.weight, 1)) << "with one thread";
  std::vector<float> values(static_cast<size_t>(columns)), exact(values);
  for (int64_t i = 0; i < rows; ++i) {
    const std::byte* of_row = bytes->data() + i * RowBytes(dtype, columns);
    DequantizeRow(dtype, reinterpret_cast<const uint8_t*>(of_row), columns, values.data());
    ReadWeightRow(stored.weight, 0, i, exact.data());
    for (int64_t j = 0; j < columns; ++j) {
      const size_t at = static_cast<size_t>(j);
      const int64_t group = index.empty() ? (column + j) / m.group : index[column + j];
      ASSERT_EQ(values[at], Expected(m, dtype, row + i, column + j, group))
          << "row " << i << ", column " << j;
      ASSERT_EQ(exact[at], Exact(m, row + i, column + j, group)) << "row " << i << ", column " << j;
    }
  }
}

constexpr auto kAwq = QuantizedLayout::kAwq;
constexpr auto kGptq = QuantizedLayout::kGptq;
constexpr auto kGptqV2 = QuantizedLayout::kGptqV2;
constexpr auto kPacked = QuantizedLayout::kPackQuantized;

TEST(PackedIntegers, FourBitsWithZerosAreQ4_1) {
  for (QuantizedLayout layout : {kAwq, kGptq, kGptqV2, kPacked}) {
    CheckBlocks(Random(8, 32, 32, 4, true), layout, DType::kQ4_1, true);
    CheckBlocks(Random(264, 160, 64, 4, true), layout, DType::kQ4_1, true);
  }
  CheckBlocks(Random(131, 64, 64, 4, true), kPacked, DType::kQ4_1, true);
}

TEST(PackedIntegers, FourBitsWithoutZerosAreQ4_0) {
  for (QuantizedLayout layout : {kAwq, kGptq, kPacked}) {
    CheckBlocks(Random(136, 96, 96, 4, false), layout, DType::kQ4_0, false);
  }
  CheckBlocks(Random(37, 64, 32, 4, false), kGptq, DType::kQ4_0, false);
}

TEST(PackedIntegers, EightBitsWithoutZerosAreQ8_0) {
  for (QuantizedLayout layout : {kGptq, kGptqV2, kPacked}) {
    CheckBlocks(Random(132, 96, 32, 8, false), layout, DType::kQ8_0, false);
  }
}

void ExpectRefused(const StatusOr<std::vector<std::byte>>& result, StatusCode code,
                   const std::string& part) {
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), code);
  EXPECT_NE(result.status().message().find(part), std::string::npos) << result.status().message();
}

// Code i % 16 in column i of every row; scales 2^-9, 1 and 8.
TEST(PackedIntegers, Mxfp4IsQ8_0) {
  constexpr float kFloats[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  std::vector<uint8_t> scales = {118, 127, 130};
  Stored c;
  for (int i = 0; i < 6; ++i) c.values.insert(c.values.end(), {0x76543210u, 0xfedcba98u});
  c.parts.format = {.layout = QuantizedLayout::kMxfp4, .block_columns = 32};
  c.parts.values = TensorView::Dense(nullptr, DType::kI32, {3, 4});
  c.View(3, 32, 4);
  c.parts.scales = TensorView::Dense(scales.data(), DType::kU8, {3, 1});
  EXPECT_EQ(AsBlocks(c.weight).dtype, DType::kQ8_0);
  const StatusOr<std::vector<std::byte>> bytes = MakeBlocks(c.weight);
  ASSERT_TRUE(bytes.ok()) << bytes.status().ToString();
  std::vector<float> values(32), exact(32);
  for (int64_t row = 0; row < 3; ++row) {
    const std::byte* of_row = bytes->data() + row * RowBytes(DType::kQ8_0, 32);
    DequantizeRow(DType::kQ8_0, reinterpret_cast<const uint8_t*>(of_row), 32, values.data());
    ReadWeightRow(c.weight, 0, row, exact.data());
    for (size_t i = 0; i < 32; ++i) {
      const float code = i % 16 < 8 ? kFloats[i % 8] : -kFloats[i % 8];
      const float expected = std::ldexp(code, scales[static_cast<size_t>(row)] - 127);
      EXPECT_EQ(values[i], expected) << row << " " << i;
      EXPECT_EQ(exact[i], expected) << row << " " << i;
    }
  }
  // For slices it stays: a byte of scale, then columns i and i + 16 in byte i.
  ASSERT_EQ(SliceDTypeOf(c.weight), DType::kMxfp4);
  const ConvertedMatrix matrix(c.weight, 0, DType::kMxfp4);
  EXPECT_TRUE(matrix.Check().ok());
  std::vector<uint8_t> blocks(3 * 17);
  matrix.WriteRows(0, 3, blocks.data());
  for (size_t row = 0; row < 3; ++row) {
    EXPECT_EQ(blocks[17 * row], scales[row]);
    for (size_t i = 0; i < 16; ++i) EXPECT_EQ(blocks[17 * row + 1 + i], i | i << 4);
  }
  scales[1] = 255;
  ExpectRefused(MakeBlocks(c.weight), StatusCode::kDataLoss, "row 1 and group 0");
  EXPECT_EQ(matrix.Check().code(), StatusCode::kDataLoss);
}

// [256, 32] in NVFP4: rows whose two groups have scales of all sizes, zero and negative ones
// included.
struct Nvfp4 {
  static constexpr int64_t kRows = 256;

  Nvfp4() {
    std::mt19937 random(5);
    for (int64_t row = 0; row < kRows; ++row) {
      for (int i = 0; i < 4; ++i) c.values.push_back(static_cast<uint32_t>(random()));
      for (const auto s : {static_cast<uint8_t>(row), static_cast<uint8_t>(random())}) {
        scales.push_back((s & 0x7f) == 0x7f ? uint8_t{0} : s);  // 0x7f: NaN
      }
    }
    c.parts.format = {.layout = QuantizedLayout::kNvfp4, .block_columns = 16};
    c.parts.values = TensorView::Dense(nullptr, DType::kI32, {kRows, 4});
    c.View(kRows, 32, 4);
    c.parts.scales = TensorView::Dense(scales.data(), DType::kF8E4M3, {kRows, 2});
    c.parts.factor = TensorView::Dense(&factor, DType::kF32, {1});
    EXPECT_TRUE(CheckWeight(c.weight).ok()) << CheckWeight(c.weight).ToString();
  }

  uint32_t Code(int64_t row, size_t column) const {
    return c.values[static_cast<size_t>(4 * row) + column / 8] >> column % 8 * 4 & 15;
  }
  float Scale(int64_t row, size_t group) const {
    return factor * F8E4M3ToFloat(scales[static_cast<size_t>(2 * row) + group]);
  }

  float factor = 0.03f;
  std::vector<uint8_t> scales;
  Stored c;
};

TEST(PackedIntegers, Nvfp4IsQ8_0WithinABoundOfTheLargerScale) {
  constexpr float kFloats[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  Nvfp4 w;
  const StatusOr<std::vector<std::byte>> bytes = MakeBlocks(w.c.weight);
  ASSERT_TRUE(bytes.ok()) << bytes.status().ToString();
  std::vector<float> values(32), exact(32);
  for (int64_t row = 0; row < Nvfp4::kRows; ++row) {
    const std::byte* of_row = bytes->data() + row * RowBytes(DType::kQ8_0, 32);
    DequantizeRow(DType::kQ8_0, reinterpret_cast<const uint8_t*>(of_row), 32, values.data());
    ReadWeightRow(w.c.weight, 0, row, exact.data());
    const float of_group[2] = {w.Scale(row, 0), w.Scale(row, 1)};
    const float largest = std::max(std::fabs(of_group[0]), std::fabs(of_group[1]));
    for (size_t i = 0; i < 32; ++i) {
      const uint32_t q = w.Code(row, i);
      const float code = q < 8 ? kFloats[q] : -kFloats[q - 8];
      const float expected = code * of_group[i / 16];
      EXPECT_FLOAT_EQ(exact[i], expected) << row << " " << i;
      // Scales are f16: 2^-11 of a value, and 2^-25 of each step if they are subnormal.
      const float rounding = std::fabs(expected) * 0x1p-11f + 127 * 0x1p-25f;
      const bool is_larger = std::fabs(of_group[i / 16]) == largest;
      EXPECT_LE(std::fabs(values[i] - expected), rounding + (is_larger ? 0 : largest / 40))
          << row << " " << i;
    }
  }
  w.scales[6] = 0x7f;
  ExpectRefused(MakeBlocks(w.c.weight), StatusCode::kDataLoss, "row 3 and group 0");
  w.scales[6] = 0;
  w.factor = std::numeric_limits<float>::infinity();
  ExpectRefused(MakeBlocks(w.c.weight), StatusCode::kDataLoss, "row 0 and group");
  // The largest scale, of 448, is stored as 22.4 times the factor.
  w.factor = 0x1.01p-17f / 22.4f;
  EXPECT_TRUE(MakeBlocks(w.c.weight).ok());
  w.factor /= 2;
  ExpectRefused(MakeBlocks(w.c.weight), StatusCode::kUnimplemented,
                "f16 does not hold well enough");
}

// Half of each scale as f16, then columns i and i + 16 in byte i.
TEST(PackedIntegers, CodesOfNvfp4StayForSlices) {
  Nvfp4 w;
  ASSERT_EQ(SliceDTypeOf(w.c.weight), kNvfp4Blocks);
  const ConvertedMatrix matrix(w.c.weight, 0, kNvfp4Blocks);
  EXPECT_TRUE(matrix.Check().ok());
  constexpr int64_t kRows = 2;
  std::vector<uint8_t> blocks(kRows * kNvfp4BlockBytes);
  for (int64_t first = 0; first < Nvfp4::kRows; first += kRows) {
    matrix.WriteRows(first, first + kRows, blocks.data());
    const uint8_t* block = blocks.data();
    for (int64_t row = first; row < first + kRows; ++row, block += kNvfp4BlockBytes) {
      for (size_t group = 0; group < 2; ++group) {
        EXPECT_EQ(LoadLe16(block + 2 * group), FloatToF16(w.Scale(row, group) / 2));
      }
      for (size_t i = 0; i < 16; ++i) {
        EXPECT_EQ(block[4 + i], w.Code(row, i) | w.Code(row, i + 16) << 4);
      }
    }
  }
  // The largest scale, of 448, is stored as 224 times the factor.
  w.factor = 0x1.01p-17f / 224;
  EXPECT_TRUE(ConvertedMatrix(w.c.weight, 0, kNvfp4Blocks).Check().ok());
  w.factor /= 2;
  EXPECT_EQ(ConvertedMatrix(w.c.weight, 0, kNvfp4Blocks).Check().code(),
            StatusCode::kUnimplemented);
}

TEST(PackedIntegers, AllElseIsBf16) {
  for (QuantizedLayout layout : {kGptq, kGptqV2, kPacked}) {
    CheckBlocks(Random(132, 64, 32, 8, true), layout, DType::kBF16, true);
  }
}

TEST(PackedIntegers, AnIndexGivesEachColumnItsGroup) {
  std::vector<int32_t> index;
  for (int32_t k = 0; k < 96; ++k) index.push_back(k * 7 % 3);
  for (QuantizedLayout layout : {kGptq, kGptqV2, kPacked}) {
    CheckBlocks(Random(16, 96, 32, 4, true), layout, DType::kBF16, true, 0, 0, index);
    CheckBlocks(Random(16, 96, 32, 8, true), layout, DType::kBF16, true, 3, 32, index);
  }
}

TEST(PackedIntegers, AWeightMayBeAPartOfTheMatrix) {
  for (QuantizedLayout layout : {kAwq, kGptq, kGptqV2, kPacked}) {
    for (int64_t row : {0, 1, 127, 128, 263}) {
      CheckBlocks(Random(264, 160, 64, 4, true), layout, DType::kQ4_1, true, row, 96);
    }
  }
}

// The bound of q4_1 in the header: d / 128.
TEST(PackedIntegers, MinimaAreRoundedByLessThanAHundredthOfAStep) {
  const Matrix m = Random(264, 160, 32, 4, true);
  for (int64_t row = 0; row < m.rows; ++row) {
    for (int64_t column = 0; column < m.columns; ++column) {
      const int64_t group = column / m.group;
      const size_t at = static_cast<size_t>(row * m.groups() + group);
      const float d = F16ToFloat(m.scales[at]);
      const float exact =
          d * static_cast<float>(m.q[static_cast<size_t>(row * m.columns + column)] - m.zeros[at]);
      ASSERT_LE(std::fabs(Expected(m, DType::kQ4_1, row, column, group) - exact),
                std::fabs(d) / 128);
    }
  }
}

// Scales of f32, one for each of 32 rows of 32 columns; integers of `bits`, 0x8 or 0x80.
StatusOr<std::vector<std::byte>> WithScales(float scale, float largest, int32_t bits,
                                            bool zeros = false) {
  Stored c;
  c.values.assign(static_cast<size_t>(32 * bits), 0x88888888u);
  c.zeros.assign(static_cast<size_t>(bits), 0x11111111u);
  c.wide_scales.assign(32, scale);
  c.wide_scales[17] = largest;
  c.parts.format = {.layout = kPacked, .block_columns = 32};
  c.parts.values = TensorView::Dense(nullptr, DType::kI32, {32, bits});
  c.parts.scales = TensorView::Dense(nullptr, DType::kF32, {32, 1});
  if (zeros) c.parts.zeros = TensorView::Dense(nullptr, DType::kI32, {bits, 1});
  c.View(32, 32, bits);
  return MakeBlocks(c.weight);
}

TEST(PackedIntegers, RefusesScalesThatF16DoesNotHold) {
  EXPECT_TRUE(WithScales(1e-3f, 65504.0f, 4).ok());
  ExpectRefused(WithScales(1e-3f, 65536.0f, 4), StatusCode::kUnimplemented, "up to 65536");
  ExpectRefused(WithScales(1e-3f, -65536.0f, 8), StatusCode::kUnimplemented, "0 to 65504");
  EXPECT_TRUE(WithScales(1e-3f, 4094.0f, 4, true).ok());
  ExpectRefused(WithScales(1e-3f, 4095.0f, 4, true), StatusCode::kUnimplemented, "0 to 4094");
  EXPECT_TRUE(WithScales(0, 0, 4, true).ok());
  EXPECT_TRUE(WithScales(1e-9f, 0x1p-17f, 8).ok());
  ExpectRefused(WithScales(1e-9f, 0x1p-18f, 8), StatusCode::kUnimplemented, "from 2^-17");
  EXPECT_TRUE(WithScales(1e-9f, 1e9f, 8, true).ok()) << "bf16 keeps f32's range";
}

TEST(PackedIntegers, RefusesScalesThatAreNotFinite) {
  ExpectRefused(WithScales(1, INFINITY, 4), StatusCode::kDataLoss, "row 17 and group 0");
  ExpectRefused(WithScales(1, NAN, 8, true), StatusCode::kDataLoss, "has a scale that is");
}

TEST(PackedIntegers, RefusesAnIndexBeyondTheGroups) {
  for (int32_t bad : {3, -1}) {
    std::vector<int32_t> index(96, 2);
    index[50] = bad;
    Stored stored;
    Store(Random(16, 96, 32, 4, true), kGptq, true, index, &stored);
    stored.View(16, 96, 4);
    ExpectRefused(MakeBlocks(stored.weight), StatusCode::kDataLoss,
                  "group " + std::to_string(bad) + " for column 50, of 3");
  }
}

// Matrices of a stack, with separate parts or as rows of one shared matrix.
TEST(PackedIntegers, AStackIsMatrixByMatrix) {
  Stored stored;
  Store(Random(24, 64, 32, 4, true), kAwq, true, {}, &stored);
  stored.View(24, 64, 4);
  stored.parts.format.row_step = 8;
  stored.parts.format.first_row = 1;
  const TensorView heads = [&] {
    TensorView view = TensorView::Dense(stored.values.data(), DType::kU4, {3, 5, 64});
    view.parts = &stored.parts;
    return view;
  }();
  const StatusOr<std::vector<std::byte>> bytes = MakeBlocks(heads);
  ASSERT_TRUE(bytes.ok()) << bytes.status().ToString();
  const TensorView blocks = AsBlocks(heads);
  EXPECT_EQ(blocks.row_stride_bytes % 64, 0);
  std::vector<float> row(64), whole(64);
  for (int64_t head = 0; head < 3; ++head) {
    const MatrixOfStack matrix(heads, head);
    const std::vector<std::byte> own = *MakeBlocks(matrix.view());
    EXPECT_TRUE(std::equal(own.begin(), own.begin() + 5 * RowBytes(DType::kQ4_1, 64),
                           bytes->begin() + head * blocks.row_stride_bytes));
    for (int64_t r = 0; r < 5; ++r) {
      ReadWeightRow(heads, head, r, row.data());
      stored.parts.format = {.layout = kAwq, .block_columns = 32};
      ReadWeightRow(stored.weight, 0, head * 8 + 1 + r, whole.data());
      stored.parts.format.row_step = 8;
      stored.parts.format.first_row = 1;
      EXPECT_EQ(row, whole) << "head " << head << ", row " << r;
    }
  }
  stored.parts.format.first_row = 4;
  EXPECT_FALSE(CheckWeight(heads).ok()) << "the last head ends beyond the matrix";
}

}  // namespace
}  // namespace pagemill::ops
