// The driver over a library of plain loops, which runs on every CPU.
#include "cc/ops/linear/onednn/block_driver.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/linear/linear.h"
#include "cc/tensor/float16.h"

namespace pagemill::ops::linear {
namespace {

using conformance::Random;
using conformance::TestTensor;

bool Aligned(const void* data) { return reinterpret_cast<uintptr_t>(data) % 64 == 0; }

void ExpectEven(BlockShape shape) {
  EXPECT_TRUE(shape.rows >= kBlockRowMultiple && shape.rows <= kMaxBlockRows) << shape.rows;
  EXPECT_EQ(shape.rows % kBlockRowMultiple, 0);
  EXPECT_EQ(shape.k % kBlockKMultiple, 0);
}

// Packed blocks are [k][rows].
void Transpose(BlockShape shape, const uint16_t* rows, std::byte* packed) {
  ExpectEven(shape);
  EXPECT_TRUE(Aligned(packed));
  auto* const out = reinterpret_cast<uint16_t*>(packed);
  for (int64_t k = 0; k < shape.k; ++k) {
    for (int64_t m = 0; m < shape.rows; ++m) out[k * shape.rows + m] = rows[m * shape.k + k];
  }
}

void Round(const float* x, int64_t k, int64_t padded_k, uint16_t* out) {
  for (int64_t i = 0; i < padded_k; ++i) out[i] = i < k ? FloatToBf16(x[i]) : uint16_t{0};
}

void Multiply(const BlockProduct& p) {
  ExpectEven(p.shape);
  EXPECT_TRUE(p.height >= 1 && p.height <= kMaxHeight) << p.height;
  EXPECT_TRUE(p.height < 16 || p.height % 16 == 0) << p.height;
  EXPECT_TRUE(Aligned(p.x) && Aligned(p.packed) && Aligned(p.y));
  const auto* const weights = reinterpret_cast<const uint16_t*>(p.packed);
  for (int64_t n = 0; n < p.height; ++n) {
    float* const y = p.y + n * p.shape.rows;
    std::fill_n(y, p.shape.rows, 0.0f);
    for (int64_t k = 0; k < p.shape.k; ++k) {
      const float x = Bf16ToFloat(p.x[n * p.shape.k + k]);
      for (int64_t m = 0; m < p.shape.rows; ++m) {
        y[m] += x * Bf16ToFloat(weights[k * p.shape.rows + m]);
      }
    }
  }
}

const BlockLibrary& PlainLoops() {
  static const BlockLibrary library = {
      .layout = "transposed",
      .supports = [](const device::Capabilities&, BlockShape shape) { return shape.k <= 2048; },
      .pack = Transpose,
      .round = Round,
      .multiply = Multiply};
  return library;
}

TEST(BlockDriver, Conforms) {
  const Kernel kernels[] = {BlockKernel<PlainLoops>("plain", 1),
                            conformance::ReferenceKernel(LinearOp())};
  CheckLinearConformance({"linear", LinearOp().check, kernels}, device::Capabilities());
}

TEST(BlockDriver, SupportsWhatTheLibraryDoesForEachMatrix) {
  const TensorView x = TensorView::Dense(nullptr, DType::kF32, {3, 2048});
  const auto supports = [&](DType dtype, int64_t k, int64_t rows) {
    const TensorView w = TensorView::Dense(nullptr, DType::kBF16, {32, 96});
    const TensorView second = TensorView::Dense(nullptr, dtype, {rows, k});
    const TensorView y = TensorView::Dense(nullptr, DType::kF32, {3, 32});
    const TensorView inputs[] = {x, w, {}, second, {}};
    const TensorView outputs[] = {y, y};
    return BlockKernel<PlainLoops>("plain", 1).supports({}, {.inputs = inputs, .outputs = outputs});
  };
  EXPECT_TRUE(supports(DType::kBF16, 96, 32));
  EXPECT_FALSE(supports(DType::kF32, 96, 32)) << "another dtype";
  EXPECT_FALSE(supports(DType::kBF16, 2049, 32)) << "longer rows than the library supports";
  EXPECT_FALSE(supports(DType::kBF16, 96, 0)) << "no rows";
}

// Matrices of a few blocks, of many, and with a last block of another shape; more rows of x than
// one product supports.
TEST(BlockDriver, DividesMatricesOfEverySize) {
  Random random(1);
  device::ThreadPool pool({.num_threads = 2});
  for (const int64_t m : {1, 64, 65, 576, 900, 1536, 3300}) {
    for (const int64_t n : {1, 17, 128, 300}) {
      SCOPED_TRACE("m=" + std::to_string(m) + " n=" + std::to_string(n));
      TestTensor x(DType::kF32, {n, 3}), w(DType::kBF16, {m, 3}), y(DType::kF32, {n, m});
      // Small integers: nothing is rounded.
      std::vector<float> xs(n * 3), ws(m * 3);
      for (float& v : xs) v = static_cast<float>(random.Int(-9, 9));
      for (float& v : ws) v = static_cast<float>(random.Int(-9, 9));
      x.Set(xs);
      w.Set(ws);
      const TensorView inputs[] = {x.view(), w.view()};
      const TensorView outputs[] = {y.view()};
      conformance::RunKernel(BlockKernel<PlainLoops>("plain", 1),
                             {.inputs = inputs, .outputs = outputs}, pool);
      EXPECT_TRUE(y.GuardsIntact());
      const std::vector<float> ys = y.ToFloat();
      for (int64_t i = 0; i < n * m; ++i) {
        const float* const a = &xs[i / m * 3];
        const float* const b = &ws[i % m * 3];
        ASSERT_EQ(ys[i], a[0] * b[0] + a[1] * b[1] + a[2] * b[2]) << i;
      }
    }
  }
}

}  // namespace
}  // namespace pagemill::ops::linear
