#include "cc/ops/add_rms_norm/add_rms_norm.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cc/device/capabilities.h"
#include "cc/ops/add/add.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/rms_norm/rms_norm.h"

namespace pagemill::ops {
namespace {

TEST(AddRmsNorm, Conformance) {
  CheckAddRmsNormConformance(AddRmsNormOp(), device::DetectCapabilities());
}

// The fused op equals the ops that the rewrite replaces: add, then rms_norm of the stored sum.
TEST(AddRmsNorm, SameBitsAsTheTwoOps) {
  const device::Capabilities caps = device::DetectCapabilities();
  device::ThreadPool pool({.num_threads = 1});
  conformance::Random random(3);
  for (DType act : {DType::kF32, DType::kBF16, DType::kF16}) {
    SCOPED_TRACE(std::string(Info(act).name));
    conformance::TestTensor x(act, {6, 577}), residual(act, {6, 577});
    conformance::TestTensor w(DType::kF32, {577}), y(act, {6, 577}), sum(act, {6, 577});
    x.FillUniform(random, -2, 2);
    residual.FillUniform(random, -2, 2);
    w.FillUniform(random, -2, 2);
    Attributes attributes;
    attributes.Set("eps", 1e-5);
    const TensorView fused_in[] = {x.view(), residual.view(), w.view()};
    const TensorView fused_out[] = {y.view(), sum.view()};
    const OpCall fused{.inputs = fused_in, .outputs = fused_out, .attributes = &attributes};
    const OpCall add{
        .inputs = {fused_in, 2}, .outputs = {fused_out + 1, 1}, .attributes = &attributes};
    const TensorView norm_in[] = {sum.view(), w.view()};
    const OpCall norm{.inputs = norm_in, .outputs = {fused_out, 1}, .attributes = &attributes};
    ASSERT_TRUE(AddRmsNormOp().check(fused).ok());
    for (const Kernel* kernel : conformance::SupportedKernels(AddRmsNormOp(), caps, fused)) {
      conformance::RunKernel(*kernel, fused, pool);
      const std::vector<float> fused_y = y.ToFloat(), fused_sum = sum.ToFloat();
      EXPECT_TRUE(y.GuardsIntact() && sum.GuardsIntact()) << kernel->name;
      y.Poison();
      sum.Poison();
      conformance::RunKernel(conformance::ReferenceKernel(AddOp()), add, pool);
      const auto norm_row = ChooseKernel(RmsNormOp(), caps, norm, {.name = kernel->name});
      ASSERT_TRUE(norm_row.ok());
      conformance::RunKernel(**norm_row, norm, pool);
      EXPECT_TRUE(conformance::BitEqual(fused_sum, sum.ToFloat())) << kernel->name;
      EXPECT_TRUE(conformance::BitEqual(fused_y, y.ToFloat())) << kernel->name;
    }
  }
}

// Outputs alias inputs, as the alias rules allow.
TEST(AddRmsNorm, InPlaceInBf16) {
  device::ThreadPool pool({.num_threads = 1});
  conformance::Random random(4);
  conformance::TestTensor x(DType::kBF16, {3, 7}), residual(DType::kBF16, {3, 7});
  conformance::TestTensor w(DType::kF32, {7}), y(DType::kBF16, {3, 7}), sum(DType::kBF16, {3, 7});
  x.FillUniform(random, -2, 2);
  residual.FillUniform(random, -2, 2);
  w.FillUniform(random, -2, 2);
  Attributes attributes;
  attributes.Set("eps", 1e-5);
  const TensorView inputs[] = {x.view(), residual.view(), w.view()};
  const TensorView apart[] = {y.view(), sum.view()}, in_place[] = {x.view(), residual.view()};
  const Kernel& kernel = conformance::ReferenceKernel(AddRmsNormOp());
  conformance::RunKernel(kernel, {inputs, apart, &attributes, nullptr}, pool);
  conformance::RunKernel(kernel, {inputs, in_place, &attributes, nullptr}, pool);
  EXPECT_EQ(x.Bytes(), y.Bytes());
  EXPECT_EQ(residual.Bytes(), sum.Bytes());
}

}  // namespace
}  // namespace pagemill::ops
