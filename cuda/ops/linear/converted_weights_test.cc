#include "cuda/ops/linear/converted_weights.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "cc/ops/conformance.h"
#include "cc/ops/quantized/converted_blocks.h"
#include "cc/ops/quantized/packed_integers.h"
#include "cc/ops/quantized/quantized.h"

namespace pagemill::gpu {
namespace {

using ops::conformance::Random;
using ops::conformance::TestTensor;

// The weight as it is uploaded: memory, and the view of it.
struct Packed {
  explicit Packed(const TensorView& w) : bytes(static_cast<size_t>(ConvertedBytes(w))) {
    device::ThreadPool pool({.num_threads = 2});
    status = PackConverted(w, bytes.data(), pool);
    view = ConvertedView(w);
    view.data = bytes.data();
  }

  std::vector<std::byte> bytes;
  Status status = OkStatus();
  TensorView view;
};

TEST(ConvertedWeights, Mxfp4IsWordsAndScalesOfTheSameValues) {
  constexpr int64_t kRows = 37, kColumns = 96;
  Random random(1);
  TestTensor w(DType::kMxfp4, {kRows, kColumns}, {.misalign_bytes = 3, .row_padding_bytes = 5});
  w.FillUniform(random, -1, 1);
  w.view().Row<uint8_t>(0)[0] = 0;  // 2^-127
  const Packed packed(w.view());
  ASSERT_TRUE(packed.status.ok()) << packed.status.ToString();
  ASSERT_TRUE(ArePackedMxfp4(packed.view));
  EXPECT_FALSE(ArePackedMxfp4(w.view()));
  const Mxfp4Parts parts(packed.view);
  ASSERT_TRUE(ops::CheckWeight(parts.view()).ok());
  std::vector<float> expected(kColumns), got(kColumns);
  for (int64_t row = 0; row < kRows; ++row) {
    ops::DequantizeConverted(DType::kMxfp4, w.view().Row<uint8_t>(row), kColumns, expected.data());
    ops::ReadWeightRow(parts.view(), 0, row, got.data());
    for (int64_t i = 0; i < kColumns; ++i) ASSERT_EQ(got[i], expected[i]) << row << ", " << i;
  }
}

TEST(ConvertedWeights, StacksOfMxfp4LieMatrixByMatrix) {
  constexpr int64_t kMatrices = 3, kRows = 5, kColumns = 64;
  Random random(2);
  TestTensor w(DType::kMxfp4, {kMatrices, kRows, kColumns});
  w.FillUniform(random, -1, 1);
  const Packed packed(w.view());
  ASSERT_TRUE(packed.status.ok()) << packed.status.ToString();
  const Mxfp4Parts parts(packed.view);
  std::vector<float> expected(kColumns), got(kColumns);
  for (int64_t e = 0; e < kMatrices; ++e) {
    for (int64_t row = 0; row < kRows; ++row) {
      ops::ReadWeightRow(w.view(), e, row, expected.data());
      ops::ReadWeightRow(parts.view(), e, row, got.data());
      for (int64_t i = 0; i < kColumns; ++i) ASSERT_EQ(got[i], expected[i]) << e << ", " << row;
    }
  }
}

// A program may have the matrices of a stack one by one: 170 bytes each, and gaps.
TEST(ConvertedWeights, StacksAreTheirMatricesOneBehindTheOther) {
  constexpr int64_t kMatrices = 3, kRows = 5, kColumns = 64;
  Random random(5);
  for (const DType dtype : {DType::kMxfp4, DType::kIQ4_NL}) {
    TestTensor w(dtype, {kMatrices, kRows, kColumns});
    w.FillUniform(random, -1, 1);
    const Packed all(w.view());
    const auto bytes = all.bytes.size() / kMatrices;
    for (int64_t e = 0; e < kMatrices; ++e) {
      TensorView matrix = w.view();
      matrix.data = w.view().Row<std::byte>(e);
      matrix.shape[0] = 1;
      const Packed one(matrix);
      ASSERT_EQ(one.bytes.size(), bytes);
      const std::byte* const in_all = all.bytes.data() + static_cast<size_t>(e) * bytes;
      EXPECT_EQ(std::memcmp(in_all, one.bytes.data(), bytes), 0) << Info(dtype).name << " " << e;
    }
  }
}

TEST(ConvertedWeights, AScaleThatIsNoneIsRefused) {
  Random random(3);
  TestTensor w(DType::kMxfp4, {4, 64});
  w.FillUniform(random, -1, 1);
  w.view().Row<uint8_t>(2)[17] = 255;
  EXPECT_EQ(Packed(w.view()).status.code(), StatusCode::kUnimplemented);
}

TEST(ConvertedWeights, OthersAreTheBlocksOfCpus) {
  Random random(4);
  TestTensor w(DType::kIQ4_NL, {4, 64});
  w.FillUniform(random, -1, 1);
  const Packed packed(w.view());
  ASSERT_TRUE(packed.status.ok()) << packed.status.ToString();
  EXPECT_EQ(packed.view.dtype, DType::kQ8_0);
  device::ThreadPool pool({.num_threads = 1});
  std::vector<std::byte> blocks(packed.bytes.size());
  ASSERT_EQ(static_cast<int64_t>(blocks.size()), ops::BlockRowsBytes(w.view()));
  ASSERT_TRUE(ops::PackBlockRows(w.view(), blocks.data(), pool).ok());
  const auto rows = static_cast<size_t>(4 * RowBytes(DType::kQ8_0, 64));
  EXPECT_EQ(std::memcmp(packed.bytes.data(), blocks.data(), rows), 0);
}

}  // namespace
}  // namespace pagemill::gpu
