#include "cc/ops/rms_norm/rms_norm.h"

#include <gtest/gtest.h>

#include <vector>

#include "cc/device/capabilities.h"
#include "cc/ops/conformance_bodies.h"

namespace pagemill::ops {
namespace {

TEST(RmsNorm, Conformance) { CheckRmsNormConformance(RmsNormOp(), device::DetectCapabilities()); }

TEST(RmsNorm, RefusesMismatchedOperands) {
  const TensorView x = TensorView::Dense(nullptr, DType::kF32, {4, 8});
  const TensorView w = TensorView::Dense(nullptr, DType::kF32, {8});
  const TensorView narrow = TensorView::Dense(nullptr, DType::kF32, {4});
  const TensorView flat = TensorView::Dense(nullptr, DType::kF32, {2, 2, 8});
  Attributes eps;
  eps.Set("eps", 1e-5);
  const Attributes none;
  const auto check = [](std::vector<TensorView> in, const TensorView& out, const Attributes& a) {
    return RmsNormOp().check({.inputs = in, .outputs = {&out, 1}, .attributes = &a}).ok();
  };
  EXPECT_TRUE(check({x, w}, x, eps));
  EXPECT_FALSE(check({x, w}, x, none));
  EXPECT_FALSE(check({x, narrow}, x, eps));
  EXPECT_FALSE(check({x, w}, flat, eps));
  EXPECT_FALSE(check({w, w}, w, eps));
  EXPECT_FALSE(check({x}, x, eps));
  const TensorView pairs = TensorView::Dense(nullptr, DType::kF32, {16});
  EXPECT_TRUE(check({flat, pairs}, flat, eps));
  EXPECT_FALSE(check({flat, narrow}, flat, eps));
  EXPECT_FALSE(check({x, pairs}, x, eps));
}

}  // namespace
}  // namespace pagemill::ops
