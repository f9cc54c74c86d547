#include "cuda/ops/kernels.h"

#include "cc/ops/conformance_bodies.h"
#include "cc/ops/linear/linear.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

using ops::conformance::Random;
using ops::conformance::TestTensor;

TEST_P(GpuConformance, Linear) {
  ops::CheckLinearConformance(OnGpu<LinearKernels>(ops::LinearOp()), GpuCapabilities());
}

// A product of bf16 with rows that vector loads can read, which the conformance body has none of.
struct AlignedProduct {
  AlignedProduct(int64_t n, int64_t m, int64_t k, DType y_type)
      : x(DType::kBF16, {n, k}), w(DType::kBF16, {m, k}), bias(DType::kF32, {m}), y(y_type, {n, m}) {
    Random random(static_cast<uint64_t>(m + k));
    w.FillUniform(random, -1, 1);
    bias.FillUniform(random, -1, 1);
    x.FillUniform(random, -2, 2);
  }

  std::vector<float> Run(const ops::Kernel& kernel, int64_t rows) {
    device::ThreadPool pool({.num_threads = 1});
    TensorView in = x.view(), out = y.view();
    in.shape[0] = out.shape[0] = rows;
    const TensorView inputs[] = {in, w.view(), bias.view()};
    y.Poison();
    ops::conformance::RunKernel(kernel,
                                {.inputs = inputs, .outputs = {&out, 1}, .attributes = &attributes},
                                pool);
    EXPECT_TRUE(y.GuardsIntact());
    std::vector<float> all = y.ToFloat();
    all.resize(static_cast<size_t>(rows * out.shape[1]));
    return all;
  }

  TestTensor x, w, bias, y;
  ops::Attributes attributes;
};

TEST_P(GpuConformance, LinearOnTensorCores) {
  const ops::OpDefinition op = OnGpu<LinearKernels>(ops::LinearOp());
  const AlignedProduct any(1, 1, 32, DType::kF32);
  const TensorView inputs[] = {any.x.view(), any.w.view(), any.bias.view()};
  const TensorView outputs[] = {any.y.view()};
  const bool has_instruction = GpuCapabilities().gpu.warp_lanes == 32;
  EXPECT_EQ(op.kernels[0].supports(
                GpuCapabilities(),
                {.inputs = inputs, .outputs = outputs, .attributes = &any.attributes}),
            has_instruction);
  if (!has_instruction) return;
  for (const auto& [m, k] : {std::pair<int64_t, int64_t>{1, 32}, {70, 96}, {131, 1024}}) {
    const int64_t most = 75;
    AlignedProduct product(most, m, k, DType::kF32);
    const std::vector<float> expected =
        product.Run(ops::conformance::ReferenceKernel(op), most);
    const std::vector<float> all = product.Run(op.kernels[0], most);
    EXPECT_TRUE(ops::conformance::AllClose(
        all, expected, {.abs = ops::LinearErrorBound(k) * 2 * static_cast<double>(k)}))
        << m << " x " << k;
    for (int64_t rows : {1, 8, 9, 32, 33}) {
      const std::vector<float> few = product.Run(op.kernels[0], rows);
      EXPECT_TRUE(ops::conformance::BitEqual(few, std::span(all).first(few.size())))
          << rows << " rows of " << m << " x " << k;
    }
  }
  AlignedProduct narrow(3, 40, 64, DType::kBF16), wide(3, 40, 64, DType::kF32);
  const std::vector<float> rounded = narrow.Run(op.kernels[0], 3);
  TestTensor expected(DType::kBF16, {3, 40});
  expected.Set(wide.Run(op.kernels[0], 3));
  EXPECT_TRUE(ops::conformance::BitEqual(rounded, expected.ToFloat()));
}

}  // namespace
}  // namespace pagemill::gpu
