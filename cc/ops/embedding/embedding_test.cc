#include "cc/ops/embedding/embedding.h"

#include <gtest/gtest.h>

#include "cc/device/capabilities.h"
#include "cc/ops/conformance_bodies.h"

namespace pagemill::ops {
namespace {

TEST(Embedding, Conformance) {
  CheckEmbeddingConformance(EmbeddingOp(), device::DetectCapabilities());
}

TEST(Embedding, CheckNamesTheMismatch) {
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
            "embedding: rows of W have 64 elements, not a multiple of the block of 256 of q4_k");
  EXPECT_EQ(check(ids, w, view(DType::kF32, {4, 32})).message(),
            "embedding: y must be f32 [N=4, H=64*], got f32 [4, 32]");
  Attributes beyond;
  beyond.Set("outside", 9);
  const TensorView inputs[] = {ids, w}, outputs[] = {y};
  EXPECT_EQ(
      EmbeddingOp().check({.inputs = inputs, .outputs = outputs, .attributes = &beyond}).message(),
      "embedding: attribute outside must be a whole number from -1 to 8, got 9.000000");
}

}  // namespace
}  // namespace pagemill::ops
