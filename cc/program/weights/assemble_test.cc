#include "cc/program/weights/assemble.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "cc/ops/block_format/block_format.h"
#include "cc/tensor/float16.h"

namespace pagemill::program {
namespace {

// A group-quantized matrix, number by number.
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

// Row-major words of integer(i, j), `along` the dimension that shares them; little endian.
template <class F>
std::string Words(int64_t rows, int64_t columns, int32_t bits, bool along_rows, const F& integer) {
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
  std::string bytes;
  for (uint32_t word : words) {
    for (int b = 0; b < 4; ++b) bytes += static_cast<char>(word >> (8 * b));
  }
  return bytes;
}

std::string Halves(const std::vector<uint16_t>& numbers) {
  std::string bytes;
  for (uint16_t n : numbers) bytes += {static_cast<char>(n), static_cast<char>(n >> 8)};
  return bytes;
}

// The tensors of a checkpoint, as lines of program text and the bytes that they point to.
struct Checkpoint {
  std::string lines;
  std::string bytes;

  void Add(const std::string& name, const std::string& type_and_shape, const std::string& data) {
    lines += "weight " + name + " " + type_and_shape + " 0 " + std::to_string(bytes.size()) + "\n";
    bytes += data;
    bytes.resize((bytes.size() + 3) / 4 * 4);
  }
};

std::string Shape(int64_t a, int64_t b) { return std::to_string(a) + "," + std::to_string(b); }

// `index`: group of each column, or empty.
Checkpoint Pack(const Matrix& m, const std::string& layout, const std::vector<int32_t>& index) {
  const int64_t n = m.rows, k = m.columns, g = m.groups(), p = 32 / m.bits;
  const auto q = [&](int64_t row, int64_t column) {
    return m.q[static_cast<size_t>(row * k + column)];
  };
  const auto zero = [&](int64_t row, int64_t group) {
    return m.zeros[static_cast<size_t>(row * g + group)] - (layout == "gptq" ? 1 : 0);
  };
  // AWQ: the row whose integer is at place j.
  const auto awq = [](int64_t j) { return j / 8 * 8 + (j % 4 * 2 + j % 8 / 4); };
  std::vector<uint16_t> turned;
  for (int64_t j = 0; j < g; ++j) {
    for (int64_t i = 0; i < n; ++i) turned.push_back(m.scales[static_cast<size_t>(i * g + j)]);
  }
  Checkpoint c;
  if (layout == "awq") {
    c.Add("v", "i32 " + Shape(k, n / 8),
          Words(k, n, 4, false, [&](int64_t i, int64_t j) { return q(awq(j), i); }));
    c.Add("z", "i32 " + Shape(g, n / 8),
          Words(g, n, 4, false, [&](int64_t i, int64_t j) { return zero(awq(j), i); }));
    c.Add("s", "f16 " + Shape(g, n), Halves(turned));
  } else if (layout == "pack_quantized") {
    c.Add("v", "i32 " + Shape(n, k / p), Words(n, k, m.bits, false, q));
    c.Add("z", "i32 " + Shape((n + p - 1) / p, g), Words(n, g, m.bits, true, zero));
    c.Add("s", "f16 " + Shape(n, g), Halves(m.scales));
  } else {
    const auto q_turned = [&](int64_t i, int64_t j) { return q(j, i); };
    const auto zero_turned = [&](int64_t i, int64_t j) { return zero(j, i); };
    c.Add("v", "i32 " + Shape(k / p, n), Words(k, n, m.bits, true, q_turned));
    if (n % p == 0) c.Add("z", "i32 " + Shape(g, n / p), Words(g, n, m.bits, false, zero_turned));
    c.Add("s", "f16 " + Shape(g, n), Halves(turned));
  }
  if (index.empty()) return c;
  std::string bytes;
  for (int32_t i : index) {
    for (int b = 0; b < 4; ++b) bytes += static_cast<char>(static_cast<uint32_t>(i) >> (8 * b));
  }
  c.Add("g", "i32 " + std::to_string(k), bytes);
  return c;
}

Program ProgramOf(const Checkpoint& checkpoint, const std::string& assembled) {
  std::string hex;
  for (char c : checkpoint.bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    hex += {kDigits[static_cast<uint8_t>(c) >> 4], kDigits[static_cast<uint8_t>(c) & 15]};
  }
  StatusOr<Program> program = Program::Parse(
      "pagemill-program 2\nfile 0 @\n" + checkpoint.lines + "assembled w " + assembled +
      "\ninput token_ids i32 tokens\nvalue out f32 logits_rows,1\nop any token_ids,w -> "
      "out\noutput logits out\n"
      "constants " +
      std::to_string(checkpoint.bytes.size()) + "\n" + hex + "\n");
  EXPECT_TRUE(program.ok()) << program.status().ToString();
  return *std::move(program);
}

StatusOr<std::vector<std::byte>> AssembleW(const Program& program, int threads = 2) {
  const StatusOr<Weights> weights = Weights::Load(program);
  EXPECT_TRUE(weights.ok()) << weights.status().ToString();
  device::ThreadPool pool({.num_threads = threads});
  const ValueId w = *program.Find("w");
  EXPECT_EQ(weights->data(w), nullptr);
  std::vector<std::byte> bytes(static_cast<size_t>(program.value(w).Bytes({})), std::byte{0xa5});
  PM_RETURN_IF_ERROR(Assemble(program, w, *weights, bytes.data(), pool));
  return bytes;
}

// What element (row, column) of an assembled weight must be, bit for bit.
float Expected(const Matrix& m, DType dtype, int64_t row, int64_t column, int64_t group) {
  const size_t at = static_cast<size_t>(row * m.groups() + group);
  const float d = F16ToFloat(m.scales[at]);
  const float q = static_cast<float>(m.q[static_cast<size_t>(row * m.columns + column)]);
  const float zero = static_cast<float>(m.zeros[at]);
  if (dtype == DType::kQ4_1) return d * q + F16ToFloat(FloatToF16(-d * zero));
  const float exact = d * (q - zero);  // 11 bits times 9
  return dtype == DType::kBF16 ? Bf16ToFloat(FloatToBf16(exact)) : exact;
}

// Assembles rows and columns from `row` and `column` on and compares every element.
void CheckAssembled(const Matrix& m, const std::string& layout, DType dtype, int64_t row = 0,
                    int64_t column = 0, const std::vector<int32_t>& index = {}) {
  const int64_t rows = m.rows - row, columns = m.columns - column;
  const bool zeros = dtype == DType::kQ4_1 || dtype == DType::kBF16;
  const std::string line = std::string(Info(dtype).name) + " " + Shape(rows, columns) + " " +
                           layout + " " + std::to_string(m.bits) + " " + std::to_string(m.group) +
                           " v,s," + (zeros ? "z" : "-") + "," + (index.empty() ? "-" : "g") + " " +
                           std::to_string(row) + " " + std::to_string(column);
  SCOPED_TRACE(line);
  const Program program = ProgramOf(Pack(m, layout, index), line);
  const StatusOr<std::vector<std::byte>> bytes = AssembleW(program);
  ASSERT_TRUE(bytes.ok()) << bytes.status().ToString();
  EXPECT_EQ(*bytes, *AssembleW(program, 1)) << "with one thread";
  std::vector<float> values(static_cast<size_t>(columns));
  for (int64_t i = 0; i < rows; ++i) {
    const std::byte* stored = bytes->data() + i * RowBytes(dtype, columns);
    ops::DequantizeRow(dtype, reinterpret_cast<const uint8_t*>(stored), columns, values.data());
    for (int64_t j = 0; j < columns; ++j) {
      const size_t at = static_cast<size_t>(column + j);
      const int64_t group = index.empty() ? (column + j) / m.group : index[at];
      ASSERT_EQ(values[static_cast<size_t>(j)], Expected(m, dtype, row + i, column + j, group))
          << "row " << i << ", column " << j;
    }
  }
}

TEST(AssembleTest, FourBitsWithZerosAreQ4_1) {
  for (const char* layout : {"awq", "gptq", "gptq_v2", "pack_quantized"}) {
    CheckAssembled(Random(8, 32, 32, 4, true), layout, DType::kQ4_1);
    CheckAssembled(Random(264, 160, 64, 4, true), layout, DType::kQ4_1);
  }
  CheckAssembled(Random(131, 64, 64, 4, true), "pack_quantized", DType::kQ4_1);
}

TEST(AssembleTest, FourBitsWithoutZerosAreQ4_0) {
  for (const char* layout : {"awq", "gptq", "pack_quantized"}) {
    CheckAssembled(Random(136, 96, 96, 4, false), layout, DType::kQ4_0);
  }
  CheckAssembled(Random(37, 64, 32, 4, false), "gptq", DType::kQ4_0);
}

TEST(AssembleTest, EightBitsWithoutZerosAreQ8_0) {
  for (const char* layout : {"gptq", "gptq_v2", "pack_quantized"}) {
    CheckAssembled(Random(132, 96, 32, 8, false), layout, DType::kQ8_0);
  }
}

TEST(AssembleTest, AllElseIsBf16) {
  for (const char* layout : {"gptq", "gptq_v2", "pack_quantized"}) {
    CheckAssembled(Random(132, 64, 32, 8, true), layout, DType::kBF16);
  }
  CheckAssembled(Random(136, 64, 32, 4, true), "awq", DType::kBF16);
}

TEST(AssembleTest, AnIndexGivesEachColumnItsGroup) {
  std::vector<int32_t> index;
  for (int32_t k = 0; k < 96; ++k) index.push_back(k * 7 % 3);
  for (const char* layout : {"gptq", "gptq_v2", "pack_quantized"}) {
    CheckAssembled(Random(16, 96, 32, 4, true), layout, DType::kBF16, 0, 0, index);
    CheckAssembled(Random(16, 96, 32, 8, true), layout, DType::kBF16, 3, 32, index);
  }
}

TEST(AssembleTest, AWeightMayBeAPartOfTheMatrix) {
  for (const char* layout : {"awq", "gptq", "gptq_v2", "pack_quantized"}) {
    for (int64_t row : {0, 1, 127, 128, 263}) {
      CheckAssembled(Random(264, 160, 64, 4, true), layout, DType::kQ4_1, row, 96);
    }
  }
}

// The bound of the header: of q4_1, d / 128.
TEST(AssembleTest, MinimaAreRoundedByLessThanAHundredthOfAStep) {
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

// Scales of f32, one for each of 32 rows of 32 columns; all integers 0x8 or 0x80.
StatusOr<std::vector<std::byte>> WithScales(float scale, float largest, const std::string& dtype) {
  std::string scales;
  for (int i = 0; i < 32; ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(i == 17 ? largest : scale);
    for (int b = 0; b < 4; ++b) scales += static_cast<char>(bits >> (8 * b));
  }
  const std::string words = dtype == "q8_0" ? "32,8" : "32,4";
  Checkpoint c;
  c.Add("v", "i32 " + words, std::string(dtype == "q8_0" ? 1024 : 512, '\x88'));
  c.Add("s", "f32 32,1", scales);
  c.Add("z", "i32 4,1", std::string(16, '\x11'));
  return AssembleW(ProgramOf(c, dtype + " 32,32 pack_quantized " + (dtype == "q8_0" ? "8" : "4") +
                                    " 32 v,s," + (dtype == "q4_1" ? "z" : "-") + ",-"));
}

void ExpectRefused(const StatusOr<std::vector<std::byte>>& result, StatusCode code,
                   const std::string& part) {
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.status().code(), code);
  EXPECT_NE(result.status().message().find(part), std::string::npos) << result.status().message();
}

TEST(AssembleTest, RefusesScalesThatF16DoesNotHold) {
  EXPECT_TRUE(WithScales(1e-3f, 65504.0f, "q4_0").ok());
  ExpectRefused(WithScales(1e-3f, 65536.0f, "q4_0"), StatusCode::kUnimplemented, "up to 65536");
  ExpectRefused(WithScales(1e-3f, -65536.0f, "q8_0"), StatusCode::kUnimplemented, "0 to 65504");
  EXPECT_TRUE(WithScales(1e-3f, 4094.0f, "q4_1").ok());
  ExpectRefused(WithScales(1e-3f, 4095.0f, "q4_1"), StatusCode::kUnimplemented, "0 to 4094");
  EXPECT_TRUE(WithScales(0, 0, "q4_1").ok());
  EXPECT_TRUE(WithScales(1e-9f, 0x1p-17f, "q8_0").ok());
  ExpectRefused(WithScales(1e-9f, 0x1p-18f, "q8_0"), StatusCode::kUnimplemented, "from 2^-17");
  EXPECT_TRUE(WithScales(1e-9f, 1e9f, "bf16").ok()) << "which keeps f32's range";
}

TEST(AssembleTest, RefusesScalesThatAreNoNumbers) {
  ExpectRefused(WithScales(1, INFINITY, "q4_0"), StatusCode::kDataLoss, "row 17 and group 0");
  ExpectRefused(WithScales(1, NAN, "bf16"), StatusCode::kDataLoss,
                "weight 'w' has a scale that is");
}

TEST(AssembleTest, RefusesAnIndexBeyondTheGroups) {
  for (int32_t bad : {3, -1}) {
    std::vector<int32_t> index(96, 2);
    index[50] = bad;
    const Checkpoint c = Pack(Random(16, 96, 32, 4, true), "gptq", index);
    ExpectRefused(AssembleW(ProgramOf(c, "bf16 16,96 gptq 4 32 v,s,z,g")), StatusCode::kDataLoss,
                  "group " + std::to_string(bad) + " for column 50, of 3");
  }
}

}  // namespace
}  // namespace pagemill::program
