#include "cc/ops/all_reduce_add_rms_norm/all_reduce_add_rms_norm.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cc/device/capabilities.h"
#include "cc/ops/add_rms_norm/add_rms_norm.h"
#include "cc/ops/all_reduce_add_rms_norm/all_reduce_add_rms_norm_conformance.h"
#include "cc/ops/conformance.h"

namespace pagemill::ops {
namespace {

TEST(AllReduceAddRmsNorm, Conformance) {
  CheckAllReduceAddRmsNormConformance(AllReduceAddRmsNormOp(), device::DetectCapabilities());
}

// In a group of one it is add_rms_norm; the conformance compares larger groups with it.
TEST(AllReduceAddRmsNorm, SameBitsAsTheTwoOps) {
  const OpDefinition& op = AllReduceAddRmsNormOp();
  const device::Capabilities caps = device::DetectCapabilities();
  device::ThreadPool pool({.num_threads = 1});
  conformance::Random random(3);
  for (DType act : {DType::kF32, DType::kBF16, DType::kF16}) {
    SCOPED_TRACE(std::string(Info(act).name));
    conformance::TestTensor x(act, {6, 577}), residual(act, {6, 577});
    conformance::TestTensor w(DType::kF32, {577}), y(act, {6, 577}), sum(act, {6, 577});
    conformance::TestTensor reduced(act, {6, 577});
    for (conformance::TestTensor* input : {&x, &residual, &w}) input->FillUniform(random, -2, 2);
    Attributes attributes;
    attributes.Set("eps", 1e-5);
    attributes.Set("ranks", 1);
    const TensorView inputs[] = {x.view(), residual.view(), w.view()};
    const TensorView outputs[] = {y.view(), sum.view(), reduced.view()};
    const OpCall call{.inputs = inputs, .outputs = outputs, .attributes = &attributes};
    ASSERT_TRUE(op.check(call).ok());
    for (const Kernel* kernel : conformance::SupportedKernels(op, caps, call)) {
      conformance::RunKernel(*kernel, call, pool);
      EXPECT_TRUE(conformance::BitEqual(reduced.ToFloat(), x.ToFloat())) << kernel->name;
      const std::vector<float> fused_y = y.ToFloat(), fused_sum = sum.ToFloat();
      y.Poison();
      sum.Poison();
      const OpCall norm_call{
          .inputs = inputs, .outputs = {outputs, 2}, .attributes = &attributes};
      const auto norm = ChooseKernel(AddRmsNormOp(), caps, norm_call, {.name = kernel->name});
      ASSERT_TRUE(norm.ok());
      conformance::RunKernel(**norm, norm_call, pool);
      EXPECT_TRUE(conformance::BitEqual(fused_sum, sum.ToFloat())) << kernel->name;
      EXPECT_TRUE(conformance::BitEqual(fused_y, y.ToFloat())) << kernel->name;
    }
  }
}

TEST(AllReduceAddRmsNorm, CheckNamesTheOperandOrAttribute) {
  const TensorView x = TensorView::Dense(nullptr, DType::kF32, {3, 8});
  const TensorView w = TensorView::Dense(nullptr, DType::kF32, {8});
  const TensorView heads = TensorView::Dense(nullptr, DType::kF32, {3, 2, 4});
  const auto message = [&](const TensorView& residual, double eps, double ranks) {
    const TensorView inputs[] = {x, residual, w}, outputs[] = {x, x, x};
    Attributes attributes;
    attributes.Set("eps", eps);
    attributes.Set("ranks", ranks);
    return AllReduceAddRmsNormOp()
        .check({.inputs = inputs, .outputs = outputs, .attributes = &attributes})
        .message();
  };
  EXPECT_EQ(message(x, 1e-5, 2), "");
  EXPECT_NE(message(heads, 1e-5, 2).find("residual must be"), std::string::npos);
  EXPECT_NE(message(x, 0, 2).find("attribute eps must be above 0"), std::string::npos);
  EXPECT_NE(message(x, 1e-5, 65).find("attribute ranks must be"), std::string::npos);
}

}  // namespace
}  // namespace pagemill::ops
