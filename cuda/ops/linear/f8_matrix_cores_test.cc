// `linear` in e4m3 on matrix cores, beside its conformance: on GPUs with and without these products.
#include "cuda/ops/linear/f8_matrix_cores.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cc/device/thread_pool.h"
#include "cc/ops/conformance.h"
#include "cc/ops/op.h"
#include "cuda/emulation/runtime.h"
#include "cuda/ops/kernels.h"
#include "cuda/ops/linear/testing/aligned_product.h"
#include "cuda/ops/linear/testing/random_scaled.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

using emulation::EmulatedGpu;
using ops::conformance::BitEqual;
using ops::conformance::Random;

// There are no tests for all ways to run kernels here.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GpuConformance);

// By the lanes of a warp.
class F8MatrixCores : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    EmulatedGpu::Configure({.warp_lanes = GetParam(), .is_of_amd = true});
  }

  RandomScaled Weights(int64_t rows, int64_t columns, ScaleBlock block) {
    return RandomScaled(DType::kF8E4M3, rows, columns, block, random_);
  }
  const ops::Kernel& KernelOf(const AlignedProduct& product,
                              std::string_view name = "matrix_core_f8") {
    const ops::Kernel* const found = product.FindKernel(op_, name);
    PAGEMILL_CHECK(found != nullptr);
    return *found;
  }

  Random random_{1};
  const ops::OpDefinition op_ = OnGpu<LinearKernels>(ops::LinearOp());
};

INSTANTIATE_TEST_SUITE_P(Lanes, F8MatrixCores, ::testing::Values(32, 64));

TEST_P(F8MatrixCores, RoundAndMultiply) {
  for (const auto& [m, k] : {std::pair<int64_t, int64_t>{72, 128}, {200, 1280}}) {
    for (const ScaleBlock& block : {ScaleBlock{1, k}, {1 << 30, k}, {128, 128}}) {
      const RandomScaled weights = Weights(m, k, block);
      for (const int64_t rows : {3, 33}) {
        SCOPED_TRACE(std::to_string(m) + " x " + std::to_string(k) + " in blocks of " +
                     std::to_string(block.rows) + ", " + std::to_string(rows) + " rows");
        AlignedProduct product(rows, weights.view(), DType::kF32);
        product.CheckRounded(product.Run(KernelOf(product), rows), /*block=*/128);
      }
    }
  }
}

// Rows of the second lie at odd multiples of 8 bytes: it is multiplied in bf16.
TEST_P(F8MatrixCores, OfSeveralMatrices) {
  const RandomScaled first = Weights(136, 384, {128, 128});
  const RandomScaled wide = Weights(40, 392, {1, 392});
  QuantizedParts parts = *wide.view().parts;
  parts.values.shape[1] = 384;
  parts.format.block_columns = 384;
  TensorView second = wide.view();
  second.shape[1] = 384;
  second.parts = &parts;
  AlignedProduct product(5, first.view(), DType::kF32), other(5, second, DType::kF32);
  other.x.Set(product.x.ToFloat());
  const TensorView inputs[] = {product.x.view(), first.view(), product.bias.view(), second,
                               other.bias.view()};
  const TensorView outputs[] = {product.y.view(), other.y.view()};
  device::ThreadPool pool({.num_threads = 1});
  ops::conformance::RunKernel(
      KernelOf(product), {.inputs = inputs, .outputs = outputs, .attributes = &product.attributes},
      pool);
  product.CheckRounded(product.y.ToFloat(), /*block=*/128);
  const std::vector<float> in_bf16 = other.y.ToFloat();
  EXPECT_TRUE(BitEqual(in_bf16, other.Run(KernelOf(other, "matrix_core"), 5)));
}

TEST_P(F8MatrixCores, OfZerosAndNaN) {
  const RandomScaled weights = Weights(40, 256, {128, 128});
  AlignedProduct product(20, weights.view(), DType::kF32);
  product.CheckZerosAndNaN(KernelOf(product));
  EXPECT_TRUE(product.Run(KernelOf(product), 0).empty());
}

TEST_P(F8MatrixCores, HaveOneScaleForSixteenOutputs) {
  const auto fits = [&](int64_t rows, int64_t columns, ScaleBlock block) {
    const RandomScaled weights = Weights(rows, columns, block);
    const AlignedProduct product(1, weights.view(), DType::kF32);
    return FitsF8MatrixCores(GpuCapabilities(), GetParam(), product.x.view(), weights.view());
  };
  EXPECT_TRUE(fits(256, 256, {1, 256}));
  EXPECT_TRUE(fits(256, 256, {16, 128}));
  EXPECT_TRUE(fits(72, 256, {128, 128}));
  EXPECT_FALSE(fits(256, 256, {8, 128}));
  EXPECT_FALSE(fits(256, 256, {24, 128}));
  EXPECT_FALSE(fits(256, 256, {64, 64}));
  EXPECT_FALSE(fits(256, 160, {128, 128}));
}

TEST_P(F8MatrixCores, AreNotOnEveryGpu) {
  const RandomScaled weights = Weights(64, 256, {128, 128});
  const AlignedProduct product(1, weights.view(), DType::kF32);
  device::Capabilities caps = GpuCapabilities();
  const auto fits = [&] {
    return FitsF8MatrixCores(caps, GetParam(), product.x.view(), weights.view());
  };
  EXPECT_TRUE(fits());
  caps.gpu.compute_major = GetParam() == 64 ? 9 : 11;  // gfx90a, gfx1100
  caps.gpu.compute_minor = 0;
  EXPECT_FALSE(fits());
}

TEST_P(F8MatrixCores, AreChosenForWeightsThatWereMadeForIt) {
  RandomScaled weights = Weights(256, 256, {128, 128});
  const AlignedProduct product(1, weights.view(), DType::kBF16);
  const auto choose = [&] {
    return product.Choose(LinearKernels(), {.activations = ops::AutomaticPrecision(product.w),
                                            .deterministic = true});
  };
  EXPECT_EQ(choose(), "matrix_core");
  weights.SetQuantizedActivations();
  EXPECT_EQ(choose(), "matrix_core_f8");
}

}  // namespace
}  // namespace pagemill::gpu
