#include "cc/ops/quantized/quantized.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace pagemill::ops {
namespace {

TensorView View(DType dtype, std::initializer_list<int64_t> shape) {
  alignas(16) static std::byte bytes[16];
  return TensorView::Dense(bytes, dtype, shape);
}

// Operands that fit: 24 rows of 128 columns in groups of 64.
struct Weight {
  QuantizedParts parts;
  TensorView view;

  std::string Message() {
    view.parts = &parts;
    return CheckWeight(view).message();
  }
};

Weight Awq() {
  return {{.format = {.layout = QuantizedLayout::kAwq, .block_columns = 64},
           .values = View(DType::kI32, {128, 3}),
           .scales = View(DType::kF16, {2, 24}),
           .zeros = View(DType::kI32, {2, 3}),
           .groups = {}},
          View(DType::kU4, {24, 128})};
}

Weight Packed() {
  return {{.format = {.layout = QuantizedLayout::kPackQuantized, .block_columns = 64},
           .values = View(DType::kI32, {24, 32}),
           .scales = View(DType::kF32, {24, 2}),
           .zeros = View(DType::kI32, {6, 2}),
           .groups = View(DType::kI32, {128})},
          View(DType::kU8, {24, 128})};
}

Weight Scaled() {
  return {{.format = {.block_rows = 1, .block_columns = 64},
           .values = View(DType::kI8, {32, 64}),
           .scales = View(DType::kF32, {32, 1}),
           .zeros = {},
           .groups = {}},
          View(DType::kI8, {32, 64})};
}

Weight Mxfp4() {
  return {{.format = {.layout = QuantizedLayout::kMxfp4, .block_columns = 32},
           .values = View(DType::kI32, {24, 16}),
           .scales = View(DType::kU8, {24, 4}),
           .zeros = {},
           .groups = {}},
          View(DType::kU4, {24, 128})};
}

Weight Nvfp4() {
  return {{.format = {.layout = QuantizedLayout::kNvfp4, .block_columns = 16},
           .values = View(DType::kI32, {24, 16}),
           .scales = View(DType::kF8E4M3, {24, 8}),
           .zeros = {},
           .groups = {},
           .factor = View(DType::kF32, {1})},
          View(DType::kU4, {24, 128})};
}

TEST(CheckWeight, AcceptsValidWeights) {
  EXPECT_EQ(Awq().Message(), "");
  EXPECT_EQ(Packed().Message(), "");
  EXPECT_EQ(Scaled().Message(), "");
  EXPECT_EQ(Mxfp4().Message(), "");
  EXPECT_EQ(Nvfp4().Message(), "");
  Weight part = Awq();
  part.view = View(DType::kU4, {5, 32});
  part.parts.format.first_row = 19, part.parts.format.first_column = 96;
  EXPECT_EQ(part.Message(), "");
  Weight blocks = Scaled();
  blocks.parts.format = {.block_rows = 24, .block_columns = 16};
  blocks.parts.scales = View(DType::kF32, {2, 4});
  EXPECT_EQ(blocks.Message(), "");
  Weight stack = Scaled();
  stack.view = stack.parts.values = View(DType::kI8, {3, 32, 64});
  stack.parts.scales = View(DType::kF32, {3, 32, 1});
  EXPECT_EQ(stack.Message(), "");
  EXPECT_TRUE(CheckWeight(View(DType::kQ4_K, {3, 256})).ok());
}

struct Change {
  void (*make)(Weight& w);
  const char* message;
};

TEST(CheckWeight, NamesTheMismatch) {
  EXPECT_EQ(CheckWeight(View(DType::kU8, {32, 64})).message(), "W must be a weight dtype, got u8");
  EXPECT_EQ(CheckWeight(View(DType::kQ4_0, {3, 32 * 5})).message(), "");
  EXPECT_NE(CheckWeight(View(DType::kF32, {3})).message(), "");
  const Change of_awq[] = {
      {[](Weight& w) { w.view.dtype = DType::kU8; }, "W in layout awq must be u4, got u8"},
      {[](Weight& w) { w.parts.format.block_columns = 48; }, "a multiple of 32 columns"},
      {[](Weight& w) { w.parts.format.block_columns = 0; }, "got 1 x 0"},
      {[](Weight& w) { w.parts.format.block_rows = 2; }, "got 2 x 64"},
      {[](Weight& w) { w.parts.format.block_columns = int64_t{1} << 62; }, "up to 2^31"},
      {[](Weight& w) { w.parts.format.block_columns = 32; }, "scales of W are f16 [2,24] for 24"},
      {[](Weight& w) { w.parts.values.dtype = DType::kF32; }, "values of W are f32 [128,3]"},
      {[](Weight& w) { w.parts.values = View(DType::kI32, {384}); }, "must have two dimensions"},
      {[](Weight& w) { w.parts.values.row_stride_bytes = 16; }, "must be dense"},
      {[](Weight& w) { w.parts.values = {}; }, "must be dense"},
      {[](Weight& w) {
         w.parts.scales = View(DType::kI32, {2, 24});
       },
       "scales of W are i32"},
      {[](Weight& w) {
         w.parts.zeros = View(DType::kI32, {2, 4});
       },
       "zeros of W are i32 [2,4]"},
      {[](Weight& w) { w.parts.groups = View(DType::kI32, {64}); }, "groups of W are i32 [64]"},
      {[](Weight& w) { w.parts.format.first_row = 1; }, "W u4 [24,128] at row 1 and column 0"},
      {[](Weight& w) { w.parts.format.first_row = -1; }, "at row -1"},
      {[](Weight& w) { w.parts.format.first_row = INT64_MAX; }, "at row 9223372036854775807"},
      {[](Weight& w) { w.parts.format.first_column = 16; }, "column 16"},
      {[](Weight& w) {
         w.view = View(DType::kU4, {24, 16});
       },
       "columns come in multiples of 32"},
  };
  for (const Change& change : of_awq) {
    Weight w = Awq();
    change.make(w);
    EXPECT_NE(w.Message().find(change.message), std::string::npos)
        << w.Message() << " | " << change.message;
  }
  const Change of_scaled[] = {
      {[](Weight& w) { w.parts.values.dtype = w.view.dtype = DType::kU8; }, "i8 or f8_e4m3"},
      {[](Weight& w) {
         w.parts.scales = View(DType::kF32, {1, 1});
       },
       "scales are f32 [1,1], but W is i8 [32,64] in blocks of 1 x 64"},
      {[](Weight& w) { w.parts.format.block_columns = 2; }, "a multiple of 4 columns, got 1 x 2"},
      {[](Weight& w) { w.parts.format.block_rows = 0; }, "got 0 x 64"},
      {[](Weight& w) {
         w.parts.zeros = View(DType::kI32, {1, 1});
       },
       "must not have zeros"},
      {[](Weight& w) { w.parts.format.first_row = 1; }, "or a place in another matrix"},
      {[](Weight& w) {
         w.parts.scales = View(DType::kF16, {32, 1});
       },
       "scales are f16"},
      {[](Weight& w) { w.parts.factor = View(DType::kF32, {1}); }, "must not have zeros"},
  };
  for (const Change& change : of_scaled) {
    Weight w = Scaled();
    change.make(w);
    EXPECT_NE(w.Message().find(change.message), std::string::npos)
        << w.Message() << " | " << change.message;
  }
}

TEST(CheckWeight, NamesTheMismatchOfNvfp4) {
  const Change of_nvfp4[] = {
      {[](Weight& w) { w.parts.factor = {}; }, "nvfp4 must have a factor, f32 [1]"},
      {[](Weight& w) { w.parts.factor = View(DType::kF16, {1}); }, "must have a factor"},
      {[](Weight& w) { w.parts.factor = View(DType::kF32, {24}); }, "must have a factor"},
      {[](Weight& w) { w.parts.scales.dtype = DType::kU8; }, "scales of W are u8 [24,8]"},
      {[](Weight& w) { w.parts.format.block_columns = 32; }, "one row and 16 columns, got 1 x 32"},
      {[](Weight& w) { w.parts.zeros = w.parts.values; }, "must have no zeros"},
      {[](Weight& w) { w.view.dtype = DType::kU8; }, "W in layout nvfp4 must be u4, got u8"},
      {[](Weight& w) {
         w.parts.format = Mxfp4().parts.format, w.parts.scales = View(DType::kU8, {24, 4});
       },
       "W in layout mxfp4 must have no factor"},
  };
  for (const Change& change : of_nvfp4) {
    Weight w = Nvfp4();
    change.make(w);
    EXPECT_NE(w.Message().find(change.message), std::string::npos)
        << w.Message() << " | " << change.message;
  }
}

TEST(ReadWeightRow, ScalesBlocks) {
  std::vector<int8_t> values = {1, 2, 3, 4, 5, 6, 7, 8, -1, -2, -3, -4, -5, -6, -7, -128};
  std::vector<float> scales = {2, 10, 0.5f, 1};
  Weight w = Scaled();
  w.parts.format = {.block_rows = 1, .block_columns = 4};
  w.parts.values = TensorView::Dense(values.data(), DType::kI8, {2, 8});
  w.parts.scales = TensorView::Dense(scales.data(), DType::kF32, {2, 2});
  w.view = w.parts.values;
  ASSERT_EQ(w.Message(), "");
  std::vector<float> row(8);
  ReadWeightRow(w.view, 0, 0, row.data());
  EXPECT_EQ(row, (std::vector<float>{2, 4, 6, 8, 50, 60, 70, 80}));
  ReadWeightRow(w.view, 0, 1, row.data());
  EXPECT_EQ(row, (std::vector<float>{-0.5f, -1, -1.5f, -2, -5, -6, -7, -128}));
}

TEST(HaveOneFormat, LooksAtAllButThePlace) {
  Weight a = Awq(), b = Awq();
  a.Message(), b.Message();
  b.parts.format.first_row = 3;
  EXPECT_TRUE(HaveOneFormat(a.view, b.view));
  b.parts.zeros = {};
  EXPECT_FALSE(HaveOneFormat(a.view, b.view));
  Weight c = Scaled(), d = Scaled();
  c.Message(), d.Message();
  EXPECT_TRUE(HaveOneFormat(c.view, d.view));
  d.parts.format.quantized_activations = true;
  EXPECT_FALSE(HaveOneFormat(c.view, d.view));
  EXPECT_FALSE(HaveOneFormat(c.view, View(DType::kI8, {32, 64})));
}

}  // namespace
}  // namespace pagemill::ops
