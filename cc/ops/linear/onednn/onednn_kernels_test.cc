// oneDNN in the kernel table of `linear`, if it is built in: `bazelw test --config=onednn`.
#include "cc/ops/linear/onednn/onednn_kernels.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cc/device/capabilities.h"
#include "cc/device/thread_pool.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/linear/linear.h"

namespace pagemill::ops::linear {
namespace {

using conformance::Random;
using conformance::TestTensor;

class Onednn : public ::testing::Test {
 protected:
  void SetUp() override {
    if (OnednnKernels().empty()) GTEST_SKIP() << "built without oneDNN";
    if (!caps_.cpu.avx512_bf16) GTEST_SKIP() << "needs AVX512-BF16";
  }
  const device::Capabilities caps_ = device::DetectCapabilities();
};

TEST_F(Onednn, Conforms) {
  std::vector<Kernel> kernels(OnednnKernels().begin(), OnednnKernels().end());
  kernels.push_back(conformance::ReferenceKernel(LinearOp()));
  CheckLinearConformance({"linear", LinearOp().check, kernels}, caps_);
}

TEST_F(Onednn, IsChosenByNameOnly) {
  TestTensor x(DType::kF32, {8, 576}), w(DType::kBF16, {576, 576}), y(DType::kF32, {8, 576});
  const TensorView inputs[] = {x.view(), w.view()};
  const TensorView outputs[] = {y.view()};
  const OpCall call{.inputs = inputs, .outputs = outputs};
  EXPECT_EQ((*ChooseKernel(LinearOp(), caps_, call, {.name = "onednn"}))->name, "onednn");
  EXPECT_NE((*ChooseKernel(LinearOp(), caps_, call))->name, "onednn");
  const KernelLimits exact = {.name = "onednn", .activations = Precision::kF32};
  EXPECT_FALSE(ChooseKernel(LinearOp(), caps_, call, exact).ok());
  EXPECT_FALSE(ChooseKernel(LinearOp(), {}, call, {.name = "onednn"}).ok());
}

// Shapes of models: oneDNN may choose another order of accumulation for each height, which the
// contract forbids. Version 3.6 does so for some shapes, which the kernel must not support.
TEST_F(Onednn, RowsHaveTheSameBitsInProductsOfEveryHeight) {
  const Kernel& kernel = OnednnKernels()[0];
  Random random(1);
  device::ThreadPool pool({.num_threads = 1});
  struct Shape {
    int64_t k, m;
  };
  for (const Shape& shape : {Shape{576, 576}, Shape{1536, 1600}, Shape{896, 4864}}) {
    SCOPED_TRACE(std::to_string(shape.k) + "x" + std::to_string(shape.m));
    TestTensor x(DType::kF32, {128, shape.k}), w(DType::kBF16, {shape.m, shape.k});
    x.FillUniform(random, -2, 2);
    w.FillUniform(random, -1, 1);
    const TensorView stored[] = {x.view(), w.view()};
    const TensorView product[] = {TensorView::Dense(nullptr, DType::kF32, {128, shape.m})};
    if (!kernel.supports(caps_, {.inputs = stored, .outputs = product})) continue;
    const auto run = [&](int64_t height) {
      TestTensor y(DType::kF32, {height, shape.m});
      TensorView inputs[] = {x.view(), w.view()};
      inputs[0].shape[0] = height;
      const TensorView outputs[] = {y.view()};
      conformance::RunKernel(kernel, {.inputs = inputs, .outputs = outputs}, pool);
      return y.ToFloat();
    };
    const std::vector<float> all = run(128);
    for (const int64_t height : {1, 2, 3, 5, 7, 8, 11, 15, 16, 32, 48, 64, 80, 96, 112}) {
      const std::vector<float> expected(all.begin(), all.begin() + height * shape.m);
      ASSERT_TRUE(conformance::BitEqual(run(height), expected)) << height << " rows";
    }
  }
}

}  // namespace
}  // namespace pagemill::ops::linear
