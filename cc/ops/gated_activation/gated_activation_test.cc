#include "cc/ops/gated_activation/gated_activation.h"

#include <gtest/gtest.h>

#include <vector>

#include "cc/device/capabilities.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"

namespace pagemill::ops {
namespace {

TEST(GatedActivation, Conformance) {
  CheckGatedActivationConformance(GatedActivationOp(), device::DetectCapabilities());
}

// A limit of 2: the gate is bounded above only, what it multiplies on both sides, before the offset.
TEST(GatedActivation, LimitsByHand) {
  conformance::TestTensor gate(DType::kF32, {1, 4}), up(DType::kF32, {1, 4}), y(DType::kF32, {1, 4});
  gate.Set(std::vector<float>{3, -3, 1, 2});
  up.Set(std::vector<float>{1, 5, -5, 0});
  Attributes attributes;
  attributes.Set("kind", static_cast<double>(ActivationKind::kIdentity));
  attributes.Set("limit", 2);
  attributes.Set("up_offset", 1);
  const TensorView inputs[] = {gate.view(), up.view()}, outputs[] = {y.view()};
  const OpCall call{.inputs = inputs, .outputs = outputs, .attributes = &attributes};
  device::ThreadPool pool({.num_threads = 1});
  for (const Kernel* kernel :
       conformance::SupportedKernels(GatedActivationOp(), device::DetectCapabilities(), call)) {
    y.Poison();
    conformance::RunKernel(*kernel, call, pool);
    EXPECT_EQ(y.ToFloat(), (std::vector<float>{4, -9, -1, 2})) << kernel->name;
  }
}

TEST(GatedActivation, RefusesAttributes) {
  const TensorView rows = TensorView::Dense(nullptr, DType::kF32, {3, 4});
  const TensorView inputs[] = {rows, rows}, outputs[] = {rows};
  const auto check = [&](double limit, double offset) {
    Attributes attributes;
    attributes.Set("kind", 0);
    attributes.Set("limit", limit);
    attributes.Set("up_offset", offset);
    return GatedActivationOp()
        .check({.inputs = inputs, .outputs = outputs, .attributes = &attributes})
        .message();
  };
  EXPECT_EQ(check(7, 1), "");
  EXPECT_EQ(check(-1, 0), "gated_activation: attribute limit must be a finite number >= 0");
  EXPECT_EQ(check(0, 1),
            "gated_activation: attribute up_offset must be a finite number, and 0 without a limit");
}

}  // namespace
}  // namespace pagemill::ops
