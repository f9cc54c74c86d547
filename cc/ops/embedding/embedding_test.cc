#include "cc/ops/embedding/embedding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "cc/device/capabilities.h"
#include "cc/ops/block_format/block_format.h"
#include "cc/ops/conformance.h"

namespace pagemill::ops {
namespace {

using conformance::Random;
using conformance::TestTensor;

constexpr DType kWeightDTypes[] = {DType::kF32,  DType::kBF16, DType::kF16,  DType::kQ4_0,
                                   DType::kQ4_1, DType::kQ5_0, DType::kQ8_0, DType::kQ4_K,
                                   DType::kQ5_K, DType::kQ6_K};

// Every row of the table against the contract's formula, bit for bit.
void CheckGather(DType dtype, int64_t n, double scale) {
  SCOPED_TRACE(std::string(Info(dtype).name) + " n=" + std::to_string(n));
  const int64_t vocab = 23;
  const int64_t hidden = IsBlockFormat(dtype) ? 512 : 33;
  Random random(5);
  TestTensor ids(DType::kI32, {n}, {.misalign_bytes = 4});
  TestTensor w(dtype, {vocab, hidden}, {.misalign_bytes = 2});
  TestTensor y(DType::kF32, {n, hidden}, {.misalign_bytes = 4, .row_padding_bytes = 12});
  ids.FillUniform(random, 0, vocab - 1);
  w.FillUniform(random, -1, 1);
  std::vector<float> expected(n * hidden);
  for (int64_t i = 0; i < n; ++i) {
    const int32_t id = *(ids.view().Row<int32_t>(i));
    DequantizeRow(dtype, w.view().Row<uint8_t>(id), hidden, &expected[i * hidden]);
    for (int64_t j = 0; j < hidden; ++j) expected[i * hidden + j] *= static_cast<float>(scale);
  }
  Attributes attributes;
  if (scale != 1.0) attributes.Set("scale", scale);
  const TensorView inputs[] = {ids.view(), w.view()};
  const TensorView outputs[] = {y.view()};
  const OpCall call{.inputs = inputs, .outputs = outputs, .attributes = &attributes};
  ASSERT_TRUE(EmbeddingOp().check(call).ok());
  for (int32_t threads = 1; threads <= 3; threads += 2) {
    device::ThreadPool pool({.num_threads = threads});
    for (const KernelRow* row :
         conformance::SupportedRows(EmbeddingOp(), device::DetectCapabilities(), call)) {
      y.Poison();
      conformance::RunRow(*row, call, pool);
      EXPECT_TRUE(conformance::BitEqual(y.ToFloat(), expected)) << row->name;
      EXPECT_TRUE(y.GuardsIntact()) << row->name;
    }
  }
}

TEST(Embedding, GathersDequantizedRows) {
  for (DType dtype : kWeightDTypes) {
    for (int64_t n : {0, 1, 7, 67}) {
      CheckGather(dtype, n, 1.0);
      CheckGather(dtype, n, std::sqrt(640.0));  // Gemma's: not representable in float
    }
  }
}

TEST(Embedding, CheckNamesWhatDoesNotFit) {
  const auto view = [](DType dtype, std::initializer_list<int64_t> dims) {
    return TensorView::Dense(nullptr, dtype, dims);
  };
  const Attributes attributes;
  const auto check = [&](TensorView ids, TensorView w, TensorView y) {
    const TensorView inputs[] = {ids, w};
    const TensorView outputs[] = {y};
    return EmbeddingOp().check({.inputs = inputs, .outputs = outputs, .attributes = &attributes});
  };
  const TensorView ids = view(DType::kI32, {4});
  const TensorView w = view(DType::kQ8_0, {9, 64});
  const TensorView y = view(DType::kF32, {4, 64});
  EXPECT_TRUE(check(ids, w, y).ok());
  EXPECT_TRUE(check(ids, w, view(DType::kF32, {4, 2, 32})).ok());
  EXPECT_EQ(check(view(DType::kF32, {4}), w, y).message(),
            "embedding: ids must be i32 [N], got f32 [4]");
  EXPECT_EQ(check(ids, view(DType::kI8, {9, 64}), y).message(),
            "embedding: W must be a weight dtype, got i8");
  EXPECT_EQ(check(ids, view(DType::kQ4_K, {9, 64}), y).message(),
            "embedding: rows of W have 64 elements, no multiple of the block of 256 of q4_k");
  EXPECT_EQ(check(ids, w, view(DType::kF32, {4, 32})).message(),
            "embedding: y must be f32 [N=4, H=64*], got f32 [4, 32]");
}

}  // namespace
}  // namespace pagemill::ops
