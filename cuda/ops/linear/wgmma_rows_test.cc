#include "cuda/ops/linear/wgmma_rows.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cc/device/thread_pool.h"
#include "cc/ops/conformance.h"
#include "cc/ops/op.h"
#include "cuda/emulation/cublas_lt.h"
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
using ops::conformance::TestTensor;

// There are no tests for all ways to run kernels here.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GpuConformance);

class WgmmaRows : public ::testing::Test {
 protected:
  void SetUp() override {
    EmulatedGpu::Configure({.has_cublas_lt = true});
    emulatedCublasLtSetVersion(120900);
  }

  RandomScaled Weights(int64_t rows, int64_t columns, ScaleBlock block) {
    return RandomScaled(DType::kF8E4M3, rows, columns, block, random_);
  }

  // The one that takes these operands.
  const ops::Kernel& KernelOf(const AlignedProduct& product, std::string_view name = "wgmma") {
    const ops::Kernel* const found = product.FindKernel(op_, name);
    PAGEMILL_CHECK(found != nullptr);
    return *found;
  }

  Random random_{1};
  const ops::OpDefinition op_ = OnGpu<LinearKernels>(ops::LinearOp());
};

// The emulated GPU has four multiprocessors, so tiles of the second, third and last matrix are of
// several blocks; the last one has wide tiles with many rows.
TEST_F(WgmmaRows, AreRoundedAndMultiplied) {
  for (const auto& [m, k] :
       {std::pair<int64_t, int64_t>{72, 128}, {200, 1280}, {640, 384}, {1000, 256}}) {
    for (const ScaleBlock& block : {ScaleBlock{1, k}, {40, k}, {1 << 30, k}, {128, 128}}) {
      const RandomScaled weights = Weights(m, k, block);
      for (const DType y : {DType::kF32, DType::kBF16}) {
        AlignedProduct product(64, weights.view(), y);
        for (const int64_t rows : {1, 16, 17, 64}) {
          if (y == DType::kBF16 && rows % 16 != 1) continue;
          SCOPED_TRACE(std::to_string(m) + " x " + std::to_string(k) + " in blocks of " +
                       std::to_string(block.rows) + ", " + std::to_string(rows) + " rows");
          product.CheckRounded(product.Run(KernelOf(product), rows), /*block=*/128);
        }
      }
    }
  }
}

// A block has more steps than stages, of each tile; of wide ones several times as many.
TEST_F(WgmmaRows, OfLongRows) {
  for (const auto& [m, k] : {std::pair<int64_t, int64_t>{40, 8192}, {520, 4096}}) {
    const RandomScaled weights = Weights(m, k, {128, 128});
    for (const int64_t rows : {9, 33}) {
      SCOPED_TRACE(std::to_string(m) + " outputs, " + std::to_string(rows) + " rows");
      AlignedProduct product(rows, weights.view(), DType::kF32);
      product.CheckRounded(product.Run(KernelOf(product), rows), /*block=*/128);
    }
  }
}

TEST_F(WgmmaRows, HaveTheSameBitsAmongOthers) {
  const RandomScaled weights = Weights(328, 640, {128, 128});
  AlignedProduct product(16, weights.view(), DType::kF32);
  const std::vector<float> all = product.Run(KernelOf(product), 16);
  const std::vector<float> few = product.Run(KernelOf(product), 3);
  EXPECT_TRUE(BitEqual(few, std::span(all).first(few.size())));
}

// Matrices of one call share blocks, but neither scales nor biases.
TEST_F(WgmmaRows, OfSeveralMatrices) {
  for (const ScaleBlock& block : {ScaleBlock{1, 384}, {128, 128}}) {
    for (const int64_t rows : {5, 40}) {
      const RandomScaled first = Weights(136, 384, block), second = Weights(648, 384, block);
      AlignedProduct product(rows, first.view(), DType::kBF16);
      AlignedProduct other(rows, second.view(), DType::kBF16);
      other.x.Set(product.x.ToFloat());
      const TensorView inputs[] = {product.x.view(), first.view(), product.bias.view(),
                                   second.view(), other.bias.view()};
      const TensorView outputs[] = {product.y.view(), other.y.view()};
      device::ThreadPool pool({.num_threads = 1});
      ops::conformance::RunKernel(
          KernelOf(product),
          {.inputs = inputs, .outputs = outputs, .attributes = &product.attributes}, pool);
      product.CheckRounded(product.y.ToFloat(), /*block=*/128);
      other.CheckRounded(other.y.ToFloat(), /*block=*/128);
    }
  }
}

TEST_F(WgmmaRows, OfZerosAndNaN) {
  const RandomScaled weights = Weights(40, 256, {128, 128});
  AlignedProduct product(20, weights.view(), DType::kF32);
  product.CheckZerosAndNaN(KernelOf(product));
}

TEST_F(WgmmaRows, OfNothing) {
  const RandomScaled weights = Weights(40, 256, {128, 128}), empty = Weights(0, 256, {128, 128});
  AlignedProduct product(2, weights.view(), DType::kF32), other(2, empty.view(), DType::kF32);
  EXPECT_TRUE(product.Run(KernelOf(product), 0).empty());
  const TensorView inputs[] = {product.x.view(), weights.view(), product.bias.view(),
                               empty.view(), other.bias.view()};
  const TensorView outputs[] = {product.y.view(), other.y.view()};
  device::ThreadPool pool({.num_threads = 1});
  ops::conformance::RunKernel(
      KernelOf(product), {.inputs = inputs, .outputs = outputs, .attributes = &product.attributes},
      pool);
  product.CheckRounded(product.y.ToFloat(), /*block=*/128);
}

TEST_F(WgmmaRows, MoreAreOfTheLibraryOrOfTensorCores) {
  const RandomScaled weights = Weights(48, 128, {1, 128});
  AlignedProduct product(68, weights.view(), DType::kF32);
  const auto count = [&](int64_t rows) {
    const int64_t before = emulatedCublasLtNumProducts();
    product.Run(KernelOf(product), rows);
    return emulatedCublasLtNumProducts() - before;
  };
  EXPECT_EQ(count(64), 0);
  EXPECT_EQ(count(65), 1);
  EmulatedGpu::Configure({});
  product.CheckRounded(product.Run(KernelOf(product), 64), /*block=*/128);
  EXPECT_TRUE(BitEqual(product.Run(KernelOf(product), 65),
                       product.Run(KernelOf(product, "tensor_core"), 65)));
}

TEST_F(WgmmaRows, AreSupportedOnHopperWithScalesOfWholeStages) {
  const auto fits = [&](int64_t columns, ScaleBlock block, DType dtype = DType::kF8E4M3) {
    const RandomScaled weights(dtype, 256, columns, block, random_);
    const AlignedProduct product(1, weights.view(), DType::kF32);
    return FitsWgmmaRows(GpuCapabilities(), product.x.view(), weights.view());
  };
  EXPECT_TRUE(fits(256, {1, 256}));
  EXPECT_TRUE(fits(256, {256, 256}));
  EXPECT_TRUE(fits(256, {128, 128}));
  EXPECT_TRUE(fits(256, {1, 128}));
  EXPECT_FALSE(fits(160, {128, 128}));
  EXPECT_FALSE(fits(256, {64, 64}));
  EXPECT_FALSE(fits(256, {1, 256}, DType::kI8));
  const RandomScaled weights = Weights(256, 256, {1, 256});
  const AlignedProduct product(1, weights.view(), DType::kF32);
  for (const auto& [major, minor] : {std::pair{8, 9}, {10, 0}}) {
    device::Capabilities other_gpu = GpuCapabilities();
    other_gpu.gpu.compute_major = major;
    other_gpu.gpu.compute_minor = minor;
    EXPECT_FALSE(FitsWgmmaRows(other_gpu, product.x.view(), weights.view()));
  }
}

TEST_F(WgmmaRows, AreChosenForWeightsThatWereMadeForIt) {
  RandomScaled weights = Weights(256, 256, {128, 128});
  const AlignedProduct product(1, weights.view(), DType::kBF16);
  const auto choose = [&](bool deterministic = false) {
    return product.Choose(LinearKernels(), {.activations = ops::AutomaticPrecision(product.w),
                                            .deterministic = deterministic});
  };
  EXPECT_EQ(choose(), "cublaslt");
  weights.SetQuantizedActivations();
  EXPECT_EQ(choose(), "wgmma");
  EXPECT_EQ(choose(/*deterministic=*/true), "tensor_core");
  EmulatedGpu::Configure({});
  EXPECT_EQ(choose(), "wgmma");
}

}  // namespace
}  // namespace pagemill::gpu
