#include "cuda/ops/linear/wgmma_decoded.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/device/thread_pool.h"
#include "cc/ops/conformance.h"
#include "cc/ops/op.h"
#include "cc/ops/quantized/random_packed.h"
#include "cc/ops/testing/device_conformance.h"
#include "cc/tensor/quantized.h"
#include "cuda/device/gpu_device.h"
#include "cuda/emulation/cublas_lt.h"
#include "cuda/emulation/runtime.h"
#include "cuda/ops/kernels.h"
#include "cuda/ops/linear/awq_tiles.h"
#include "cuda/ops/linear/testing/aligned_product.h"
#include "cuda/ops/linear/testing/products_of_rows.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

using emulation::EmulatedGpu;
using ops::conformance::BitEqual;
using ops::conformance::kNoStack;
using ops::conformance::kPackedKinds;
using ops::conformance::OnHost;
using ops::conformance::PackedKind;
using ops::conformance::Random;
using ops::conformance::RandomPacked;
using ops::conformance::TestTensor;

// There are no tests for all ways to run kernels here.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GpuConformance);

// Multiplies by MultiplyDecodedRows() alone.
constexpr ops::Kernel kDecoding = {
    .op = "linear",
    .name = "decoding",
    .run =
        [](const ops::OpCall& call, ops::KernelContext& context) {
          const std::vector<Product> products = ProductsOf(call);
          for (const Product& product : products) {
            PAGEMILL_CHECK(AreDecodedRows(call.inputs[0], product.w, *context.stream));
          }
          MultiplyDecodedRows(call.inputs[0], products, context.workspace.data(),
                              *context.stream);
        },
    .workspace_bytes = [](const ops::OpCall& call,
                          int32_t) {
          return DecodedRowsBytes(call.inputs[0].shape[0], call.inputs[1]);
        },
    .activations = ops::Precision::kBf16};

const ops::Kernel& OfStored() { return kDecoding; }
const ops::Kernel& OfTiles() {
  static const ops::Kernel kernel = [] {
    ops::Kernel of_tiles = kDecoding;
    of_tiles.packing = &kAwqTiles;
    return of_tiles;
  }();
  return kernel;
}

// On operands of the host.
ops::Kernel DecodingKernel(const TensorView& w) {
  const bool is_awq = w.parts != nullptr && w.parts->format.layout == QuantizedLayout::kAwq;
  return is_awq ? OnHost<OfTiles, TestedGpu>() : OnHost<OfStored, TestedGpu>();
}

class WgmmaDecoded : public ::testing::Test {
 protected:
  void SetUp() override { EmulatedGpu::Configure({.has_cublas_lt = true}); }

  // Weights of every format that is decoded.
  std::vector<std::pair<std::string, TensorView>> Weights(int64_t rows, int64_t columns) {
    std::vector<std::pair<std::string, TensorView>> all;
    for (const PackedKind& kind : kPackedKinds) {
      if (kind.dtype != DType::kU4 || kind.has_groups) continue;
      packed_.emplace_back(kind, kNoStack, rows, columns, random_);
      all.emplace_back(NameOf(kind), packed_.back().view());
    }
    for (const DType dtype : {DType::kQ4_K, DType::kQ6_K, DType::kQ8_0}) {
      if (columns % Info(dtype).block_elements != 0) continue;
      all.emplace_back(Info(dtype).name, Blocks(dtype, rows, columns));
    }
    return all;
  }
  TensorView Blocks(DType dtype, int64_t rows, int64_t columns) {
    tensors_.emplace_back(dtype, std::initializer_list<int64_t>{rows, columns});
    tensors_.back().FillUniform(random_, -1, 1);
    return tensors_.back().view();
  }

  const std::unique_ptr<GpuDevice> gpu_ = *GpuDevice::Open(0);
  const std::unique_ptr<device::Stream> stream_ = *gpu_->NewStream();
  Random random_{1};
  std::deque<RandomPacked> packed_;
  std::deque<TestTensor> tensors_;
};

// The emulated GPU has four multiprocessors: tiles of the second and third shape are of several
// blocks, and blocks of the third have more steps than stages.
TEST_F(WgmmaDecoded, AreMultipliedInBf16) {
  for (const auto& [m, k] :
       {std::pair<int64_t, int64_t>{72, 128}, {200, 640}, {136, 2560}, {640, 256}}) {
    for (const auto& [name, w] : Weights(m, k)) {
      AlignedProduct wide(128, w, DType::kF32), narrow(128, w, DType::kBF16);
      for (const int64_t rows : {17, 64, 65, 128}) {
        SCOPED_TRACE(name + " " + std::to_string(m) + " x " + std::to_string(k) + ", " +
                     std::to_string(rows) + " rows");
        wide.CheckValues(wide.Run(DecodingKernel(w), rows));
        if (rows != 65 || k > 640) continue;
        narrow.CheckValues(narrow.Run(DecodingKernel(w), rows));
      }
      if (k > 640) continue;
      wide.LeaveOutBias();
      wide.CheckValues(wide.Run(DecodingKernel(w), 20));
    }
  }
}

// Matrices of one call share blocks, up to four in a launch, and have biases of their own.
TEST_F(WgmmaDecoded, OfSeveralMatrices) {
  for (const DType y : {DType::kF32, DType::kBF16}) {
    std::deque<AlignedProduct> products;
    std::vector<TensorView> inputs, outputs;
    for (const int64_t m : {136, 8, 264, 72, 40}) {
      products.emplace_back(/*n=*/30, Blocks(DType::kQ8_0, m, 384), y);
      AlignedProduct& product = products.back();
      product.x.Set(products[0].x.ToFloat());
      if (inputs.empty()) inputs.push_back(product.x.view());
      inputs.push_back(product.w);
      inputs.push_back(product.bias.view());
      outputs.push_back(product.y.view());
    }
    device::ThreadPool pool({.num_threads = 1});
    ops::conformance::RunKernel(
        DecodingKernel(products[0].w),
        {.inputs = inputs, .outputs = outputs, .attributes = &products[0].attributes}, pool);
    for (const AlignedProduct& product : products) product.CheckValues(product.y.ToFloat());
  }
}

TEST_F(WgmmaDecoded, AreSomeRowsOfFewBits) {
  const auto are = [&](int64_t rows, const TensorView& w) {
    const TestTensor x(DType::kBF16, {rows, w.shape[1]});
    return AreDecodedRows(x.view(), w, *stream_);
  };
  const TensorView w = Blocks(DType::kQ8_0, 40, 256);
  EXPECT_FALSE(are(16, w));
  EXPECT_TRUE(are(17, w));
  EXPECT_TRUE(are(128, w));
  EXPECT_FALSE(are(129, w));
  EXPECT_FALSE(are(40, Blocks(DType::kQ8_0, 40, 96)));
  EXPECT_FALSE(are(40, Blocks(DType::kQ5_0, 40, 256)));
  EXPECT_FALSE(are(40, Blocks(DType::kBF16, 40, 256)));
  EXPECT_GT(DecodedRowsBytes(17, w), 0);
  EXPECT_EQ(DecodedRowsBytes(16, w), 0);
  EXPECT_EQ(DecodedRowsBytes(17, Blocks(DType::kQ5_0, 40, 256)), 0);
  PackedKind with_groups = {QuantizedLayout::kGptq, DType::kU4, 64, true};
  EXPECT_TRUE(are(40, RandomPacked(with_groups, kNoStack, 40, 256, random_).view()));
  with_groups.has_groups = true;
  EXPECT_FALSE(are(40, RandomPacked(with_groups, kNoStack, 40, 256, random_).view()));
}

// The library has more rows, and tensor cores fewer.
TEST_F(WgmmaDecoded, AreOfTheKernelOfTheLibrary) {
  const ops::OpDefinition op = OnGpu<LinearKernels>(ops::LinearOp());
  for (const auto& [name, w] : Weights(48, 256)) {
    SCOPED_TRACE(name);
    AlignedProduct product(129, w, DType::kF32);
    const ops::Kernel* const kernel = product.FindKernel(op, "cublaslt");
    ASSERT_NE(kernel, nullptr);
    const auto count = [&](int64_t rows) {
      const int64_t before = emulatedCublasLtNumProducts();
      product.CheckValues(product.Run(*kernel, rows));
      return emulatedCublasLtNumProducts() - before;
    };
    EXPECT_EQ(count(16), 0);
    EXPECT_EQ(count(17), 0);
    EXPECT_EQ(count(128), 0);
    EXPECT_EQ(count(129), 1);
    for (const int64_t rows : {17, 127}) {
      EXPECT_TRUE(BitEqual(product.Run(*kernel, rows), product.Run(DecodingKernel(w), rows)));
    }
  }
}

}  // namespace
}  // namespace pagemill::gpu
