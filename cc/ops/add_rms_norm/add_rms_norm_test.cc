#include "cc/ops/add_rms_norm/add_rms_norm.h"

#include <gtest/gtest.h>

#include <vector>

#include "cc/device/capabilities.h"
#include "cc/ops/add_rms_norm/add_rms_norm_conformance.h"
#include "cc/ops/conformance.h"
#include "cc/ops/rms_norm/rms_norm.h"

namespace pagemill::ops {
namespace {

TEST(AddRmsNorm, Conformance) {
  CheckAddRmsNormConformance(AddRmsNormOp(), device::DetectCapabilities());
}

// The fused op is what the rewrite replaces: add, then rms_norm.
TEST(AddRmsNorm, SameBitsAsTheTwoOps) {
  const device::Capabilities caps = device::DetectCapabilities();
  device::ThreadPool pool({.num_threads = 1});
  conformance::Random random(3);
  conformance::TestTensor x(DType::kF32, {6, 577}), residual(DType::kF32, {6, 577});
  conformance::TestTensor w(DType::kF32, {577}), y(DType::kF32, {6, 577});
  conformance::TestTensor sum(DType::kF32, {6, 577});
  x.FillUniform(random, -2, 2);
  residual.FillUniform(random, -2, 2);
  w.FillUniform(random, -2, 2);
  Attributes attributes;
  attributes.Set("eps", 1e-5);
  const TensorView fused_in[] = {x.view(), residual.view(), w.view()};
  const TensorView fused_out[] = {y.view(), sum.view()};
  const OpCall fused{.inputs = fused_in, .outputs = fused_out, .attributes = &attributes};
  for (const KernelRow* row : conformance::SupportedRows(AddRmsNormOp(), caps, fused)) {
    conformance::RunRow(*row, fused, pool);
    const std::vector<float> fused_y = y.ToFloat();
    y.Poison();
    const TensorView norm_in[] = {sum.view(), w.view()};
    const OpCall norm{.inputs = norm_in, .outputs = {fused_out, 1}, .attributes = &attributes};
    const auto norm_row = ChooseKernel(RmsNormOp(), caps, norm, {.name = row->name});
    ASSERT_TRUE(norm_row.ok());
    conformance::RunRow(**norm_row, norm, pool);
    EXPECT_TRUE(conformance::BitEqual(fused_y, y.ToFloat())) << row->name;
  }
}

}  // namespace
}  // namespace pagemill::ops
