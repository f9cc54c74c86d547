#include "cuda/ops/linear/cublas_lt_fp8.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "cc/ops/linear/linear.h"
#include "cc/ops/testing/device_conformance.h"
#include "cuda/device/gpu_stream.h"
#include "cuda/emulation/cublas_lt.h"
#include "cuda/emulation/runtime.h"
#include "cuda/ops/kernels.h"
#include "cuda/ops/linear/joined_products.h"
#include "cuda/ops/linear/testing/aligned_product.h"
#include "cuda/ops/linear/testing/products_of_rows.h"
#include "cuda/ops/linear/testing/random_scaled.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

using emulation::EmulatedGpu;
using ops::conformance::BitEqual;
using ops::conformance::OnHost;
using ops::conformance::Random;
using ops::conformance::TestTensor;

// There are no tests for all ways to run kernels here.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GpuConformance);

constexpr CublasLtLimits kDefaults, kSmallSlices = {.slice_bytes = 16 << 10};

// A kernel with these limits, on operands of the host.
template <const CublasLtLimits& kLimits>
const ops::Kernel& KernelOf() {
  static const ops::Kernel kernel = {
      .op = "linear",
      .name = "limited",
      .run =
          [](const ops::OpCall& call, ops::KernelContext& context) {
            MultiplyByCublasLtInFp8(call.inputs[0], ProductsOf(call), context.workspace.data(),
                                    *context.stream, kLimits);
          },
      .workspace_bytes =
          [](const ops::OpCall& call, int32_t) {
            Fp8Workspace workspace(call.inputs[0], call.inputs[1], kLimits);
            int64_t most = 0;
            for (const auto& [w, bias, y] : ProductsOf(call)) {
              workspace.Add(w, /*has_bias=*/true, y);
              most = std::max(most, CublasLtProductBytes(call.inputs[0], w, /*has_bias=*/true, y,
                                                         kLimits));
            }
            return std::max(most, workspace.bytes()) +
                   JoinedProducts::Bytes(call.inputs[0].shape[0], call.outputs);
          },
      .activations = ops::Precision::kF8};
  return kernel;
}

// Multiplies as many rows as it likes in bf16.
const ops::Kernel& OnTensorCores() {
  static const ops::Kernel kernel = {
      .op = "linear",
      .name = "bf16",
      .run =
          [](const ops::OpCall& call, ops::KernelContext& context) {
            MultiplyOnTensorCores(call.inputs[0], ProductsOf(call), *context.stream);
          },
      .activations = ops::Precision::kBf16};
  return kernel;
}

class CublasLtFp8 : public ::testing::Test {
 protected:
  void SetUp() override {
    EmulatedGpu::Configure({.has_cublas_lt = true});
    emulatedCublasLtSetVersion(120900);
  }

  RandomScaled Weights(int64_t rows, int64_t columns, ScaleBlock block) {
    return RandomScaled(DType::kF8E4M3, rows, columns, block, random_);
  }

  static int64_t CountProducts(AlignedProduct& product, const ops::Kernel& kernel, int64_t rows) {
    const int64_t before = emulatedCublasLtNumProducts();
    product.Run(kernel, rows);
    return emulatedCublasLtNumProducts() - before;
  }

  Random random_{1};
  const ops::Kernel kernel_ = OnHost<KernelOf<kDefaults>, TestedGpu>();
  const ops::Kernel in_slices_ = OnHost<KernelOf<kSmallSlices>, TestedGpu>();
  const ops::Kernel in_bf16_ = OnHost<OnTensorCores, TestedGpu>();
};

// Scales of rows as they are stored, and laid out in the workspace: of 40 rows, of all.
TEST_F(CublasLtFp8, RoundsRowsAndMultipliesExactly) {
  for (const int64_t block_rows : {1, 40, 1 << 30}) {
    SCOPED_TRACE(block_rows);
    const RandomScaled weights = Weights(136, 96, {block_rows, 96});
    for (const DType y : {DType::kF32, DType::kBF16}) {
      AlignedProduct product(35, weights.view(), y);
      product.CheckRounded(product.Run(kernel_, 35), /*block=*/96);
      EXPECT_EQ(CountProducts(product, kernel_, 35), 1);
    }
  }
}

// 512 columns have scales that the library reads as they are stored, others are laid out.
TEST_F(CublasLtFp8, RoundsBlocksAndMultipliesExactly) {
  for (const int64_t columns : {512, 160, 1184}) {
    SCOPED_TRACE(columns);
    const RandomScaled weights = Weights(200, columns, {128, 128});
    for (const DType y : {DType::kF32, DType::kBF16}) {
      AlignedProduct product(36, weights.view(), y);
      product.CheckRounded(product.Run(kernel_, 36), /*block=*/128);
      EXPECT_EQ(CountProducts(product, kernel_, 36), 1);
    }
  }
}

TEST_F(CublasLtFp8, TakesManyRows) {
  const RandomScaled weights = Weights(24, 64, {1, 64});
  AlignedProduct product(33, weights.view(), DType::kF32);
  EXPECT_EQ(CountProducts(product, kernel_, 32), 0);
  EXPECT_EQ(CountProducts(product, kernel_, 33), 1);
  EXPECT_TRUE(BitEqual(product.Run(kernel_, 32), product.Run(in_bf16_, 32)));
}

// A slice has 128 rows here.
TEST_F(CublasLtFp8, HasTheSameBitsInSlices) {
  for (const ScaleBlock& block : {ScaleBlock{1, 160}, {128, 128}}) {
    const RandomScaled weights = Weights(40, 160, block);
    AlignedProduct product(300, weights.view(), DType::kBF16);
    EXPECT_EQ(CountProducts(product, in_slices_, 300), 3);
    EXPECT_TRUE(BitEqual(product.Run(in_slices_, 300), product.Run(kernel_, 300)));
  }
}

// With the bits of single ones, of which some rows are left to tensor cores. 160 columns have scales
// that are laid out. A scale of 128 rows belongs to one matrix.
TEST_F(CublasLtFp8, JoinsMatricesBehindEachOther) {
  const auto check = [&](const RandomScaled& weights, const std::vector<int64_t>& heights,
                         int64_t expected) {
    for (const bool has_bias : {false, true}) {
      ProductsOfRows products(weights.view(), heights, /*rows=*/38, DType::kBF16, has_bias);
      const int64_t before = emulatedCublasLtNumProducts();
      const std::vector<std::vector<float>> together = products.Run(kernel_);
      EXPECT_EQ(emulatedCublasLtNumProducts() - before, expected);
      EXPECT_EQ(together, products.RunEach(kernel_));
    }
  };
  for (const int64_t columns : {512, 160}) {
    SCOPED_TRACE(columns);
    check(Weights(128 + 256 + 72, columns, {128, 128}), {128, 256, 72}, 1);
    check(Weights(40 + 72, columns, {1, columns}), {40, 72}, 1);
  }
}

// By the kernel of the table, whose tests find what is written behind its workspace.
TEST_F(CublasLtFp8, HasRoomForResultsOfJoinedMatrices) {
  const ops::OpDefinition op = OnGpu<LinearKernels>(ops::LinearOp());
  const ops::Kernel& kernel = *std::ranges::find(op.kernels, "cublaslt_fp8", &ops::Kernel::name);
  const RandomScaled weights = Weights(104, 64, {1, 64});
  ProductsOfRows products(weights.view(), {40, 40, 24}, 256, DType::kBF16, /*has_bias=*/true);
  const int64_t before = emulatedCublasLtNumProducts();
  const std::vector<std::vector<float>> together = products.Run(kernel);
  EXPECT_EQ(emulatedCublasLtNumProducts() - before, 1);
  EXPECT_EQ(together, products.RunEach(kernel));
}

TEST_F(CublasLtFp8, LeavesRowsBehindTheLastFourOfBlocksInBf16) {
  const RandomScaled weights = Weights(40, 256, {128, 128});
  AlignedProduct product(39, weights.view(), DType::kF32);
  const std::vector<float> got = product.Run(kernel_, 39), whole = product.Run(kernel_, 36);
  const std::vector<float> in_bf16 = product.Run(in_bf16_, 39);
  EXPECT_TRUE(BitEqual(std::span(got).first(whole.size()), whole));
  EXPECT_TRUE(BitEqual(std::span(got).subspan(whole.size()),
                       std::span(in_bf16).subspan(whole.size())));
}

// Scales of the second matrix, and its bias, are not those of the first, which has equal sizes.
TEST_F(CublasLtFp8, HasTheBitsOfSingleMatrices) {
  for (const ScaleBlock& block : {ScaleBlock{1, 256}, {16, 256}, {128, 128}}) {
    const RandomScaled first = Weights(40, 256, block), second = Weights(40, 256, block);
    AlignedProduct alone(34, first.view(), DType::kBF16), other(34, second.view(), DType::kBF16);
    TestTensor y(DType::kBF16, {34, 40}), other_y(DType::kBF16, {34, 40});
    TestTensor other_bias(DType::kF32, {40});
    other_bias.FillUniform(random_, -1, 1);
    const TensorView inputs[] = {alone.x.view(), first.view(), alone.bias.view(), second.view(),
                                 other_bias.view()};
    const TensorView outputs[] = {y.view(), other_y.view()};
    device::ThreadPool pool({.num_threads = 1});
    ops::conformance::RunKernel(
        kernel_, {.inputs = inputs, .outputs = outputs, .attributes = &alone.attributes}, pool);
    EXPECT_TRUE(BitEqual(y.ToFloat(), alone.Run(kernel_, 34)));
    other.x.Set(alone.x.ToFloat());
    other.bias.Set(other_bias.ToFloat());
    EXPECT_TRUE(BitEqual(other_y.ToFloat(), other.Run(kernel_, 34)));
  }
}

TEST_F(CublasLtFp8, RowsOfZerosAndNaN) {
  for (const ScaleBlock& block : {ScaleBlock{1, 256}, {128, 128}}) {
    const RandomScaled weights = Weights(40, 256, block);
    AlignedProduct(36, weights.view(), DType::kF32).CheckZerosAndNaN(kernel_);
  }
}

// The library multiplies no outputs that are not a multiple of 16 bytes.
TEST_F(CublasLtFp8, LeavesToOthersWhatTheLibraryCannot) {
  const RandomScaled weights = Weights(42, 64, {1, 64});
  AlignedProduct product(40, weights.view(), DType::kF32);
  EXPECT_EQ(CountProducts(product, kernel_, 40), 0);
  EXPECT_TRUE(BitEqual(product.Run(kernel_, 40), product.Run(in_bf16_, 40)));
}

TEST_F(CublasLtFp8, IsSupportedWhereTheLibraryHasScales) {
  const auto fits = [&](ScaleBlock block, DType dtype = DType::kF8E4M3) {
    const RandomScaled weights(dtype, 256, 256, block, random_);
    const AlignedProduct product(1, weights.view(), DType::kF32);
    return FitsCublasLtFp8(GpuCapabilities(), product.x.view(), weights.view());
  };
  EXPECT_TRUE(fits({1, 256}));
  EXPECT_TRUE(fits({1 << 30, 256}));
  EXPECT_TRUE(fits({128, 128}));
  EXPECT_FALSE(fits({1, 128}));
  EXPECT_FALSE(fits({64, 64}));
  EXPECT_FALSE(fits({1, 256}, DType::kI8));
  const RandomScaled weights = Weights(256, 256, {1, 256});
  const AlignedProduct product(1, weights.view(), DType::kF32);
  device::Capabilities other_gpu = GpuCapabilities();
  other_gpu.gpu.compute_major = 10;
  EXPECT_FALSE(FitsCublasLtFp8(other_gpu, product.x.view(), weights.view()));
  emulatedCublasLtSetVersion(120804);
  EXPECT_FALSE(fits({1, 256}));
}

TEST_F(CublasLtFp8, IsChosenForWeightsThatWereMadeForIt) {
  RandomScaled weights = Weights(256, 160, {128, 128});  // not for wgmma_rows.h
  const AlignedProduct product(1, weights.view(), DType::kBF16);
  const auto choose = [&](bool deterministic = false) {
    return product.Choose(LinearKernels(), {.activations = ops::AutomaticPrecision(product.w),
                                            .deterministic = deterministic});
  };
  EXPECT_EQ(choose(), "cublaslt");
  weights.SetQuantizedActivations();
  EXPECT_EQ(choose(), "cublaslt_fp8");
  EXPECT_EQ(choose(/*deterministic=*/true), "tensor_core");
  emulatedCublasLtSetVersion(120804);
  EXPECT_EQ(choose(), "cublaslt");
}

}  // namespace
}  // namespace pagemill::gpu
