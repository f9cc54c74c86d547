#include "cuda/ops/linear/cublas_lt_product.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cc/ops/linear/linear.h"
#include "cc/ops/testing/device_conformance.h"
#include "cuda/device/gpu_device.h"
#include "cuda/device/gpu_stream.h"
#include "cuda/emulation/cublas_lt.h"
#include "cuda/emulation/runtime.h"
#include "cuda/ops/kernels.h"
#include "cuda/ops/linear/joined_products.h"
#include "cuda/ops/linear/testing/aligned_product.h"
#include "cuda/ops/linear/testing/products_of_rows.h"
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

constexpr CublasLtLimits kSmallSlices = {.converted_rows = 40, .slice_bytes = 16 << 10};

// A kernel with these limits, on operands of the host.
template <const CublasLtLimits& kLimits>
const ops::Kernel& KernelOf() {
  static const ops::Kernel kernel = {
      .op = "linear",
      .name = "limited",
      .run =
          [](const ops::OpCall& call, ops::KernelContext& context) {
            MultiplyByCublasLt(call.inputs[0], ProductsOf(call), context.workspace.data(),
                               *context.stream, kLimits);
          },
      .workspace_bytes =
          [](const ops::OpCall& call, int32_t) {
            return CublasLtProductBytes(call.inputs[0], call.inputs[1], /*has_bias=*/true,
                                        call.outputs[0], kLimits) +
                   JoinedProducts::Bytes(call.inputs[0].shape[0], call.outputs);
          },
      .activations = ops::Precision::kBf16};
  return kernel;
}
constexpr CublasLtLimits kDefaults;

class CublasLtProduct : public ::testing::Test {
 protected:
  void SetUp() override { EmulatedGpu::Configure({.has_cublas_lt = true}); }

  static TestTensor Weights(DType dtype, int64_t rows, int64_t columns) {
    TestTensor weights(dtype, {rows, columns});
    Random random(1);
    weights.FillUniform(random, -1, 1);
    return weights;
  }
  // How often the library multiplies.
  static int64_t Count(AlignedProduct& product, const ops::Kernel& kernel, int64_t rows) {
    const int64_t before = emulatedCublasLtNumProducts();
    product.CheckValues(product.Run(kernel, rows));
    return emulatedCublasLtNumProducts() - before;
  }

  const ops::Kernel kernel_ = OnHost<KernelOf<kDefaults>, TestedGpu>();
};

TEST_F(CublasLtProduct, TakesManyRowsAndMoreOfThemWithOtherWeights) {
  const TestTensor bf16 = Weights(DType::kBF16, 24, 64), q8 = Weights(DType::kQ8_0, 24, 64);
  AlignedProduct of_bf16(40, bf16.view(), DType::kF32), of_q8(130, q8.view(), DType::kF32);
  EXPECT_EQ(Count(of_bf16, kernel_, 32), 0);
  EXPECT_EQ(Count(of_bf16, kernel_, 33), 1);
  EXPECT_EQ(Count(of_q8, kernel_, 127), 0);
  EXPECT_EQ(Count(of_q8, kernel_, 128), 1);
}

TEST_F(CublasLtProduct, HasTheSameBitsInSlices) {
  const ops::Kernel in_slices = OnHost<KernelOf<kSmallSlices>, TestedGpu>();
  for (const DType dtype : {DType::kBF16, DType::kQ8_0}) {
    const TestTensor weights = Weights(dtype, 300, 64);
    for (const DType y : {DType::kBF16, DType::kF32}) {
      AlignedProduct product(300, weights.view(), y);
      const std::vector<float> whole = product.Run(kernel_, 300);
      EXPECT_TRUE(BitEqual(product.Run(in_slices, 300), whole));
      const int of_outputs = dtype == DType::kBF16 ? 1 : 3, of_rows = y == DType::kF32 ? 1 : 3;
      EXPECT_EQ(Count(product, in_slices, 300), of_outputs * of_rows);
    }
  }
}

// A bias is added before the sum is rounded.
TEST_F(CublasLtProduct, RoundsOnce) {
  const TestTensor weights = Weights(DType::kBF16, 40, 64);
  AlignedProduct narrow(50, weights.view(), DType::kBF16), wide(50, weights.view(), DType::kF32);
  TestTensor expected(DType::kBF16, {50, 40});
  expected.Set(wide.Run(kernel_, 50));
  EXPECT_TRUE(BitEqual(narrow.Run(kernel_, 50), expected.ToFloat()));
}

// Those of many outputs stay alone, as do all with many rows.
TEST_F(CublasLtProduct, JoinsMatricesBehindEachOther) {
  const TestTensor weights = Weights(DType::kBF16, 4096 + 4104 + 72, 32);
  for (const bool has_bias : {false, true}) {
    for (const DType y : {DType::kBF16, DType::kF32}) {
      SCOPED_TRACE(std::string(Info(y).name) + (has_bias ? " with biases" : ""));
      const auto check = [&](const std::vector<int64_t>& heights, int64_t rows, int64_t expected) {
        ProductsOfRows products(weights.view(), heights, rows, y, has_bias);
        const int64_t before = emulatedCublasLtNumProducts();
        const std::vector<std::vector<float>> together = products.Run(kernel_);
        EXPECT_EQ(emulatedCublasLtNumProducts() - before, expected);
        EXPECT_EQ(together, products.RunEach(kernel_));
      };
      check({40, 8, 24}, 40, 1);
      check({40, 8, 24, 16, 8}, 40, 2);
      check({40, 12, 24}, 40, 3);  // results of 12 are not at multiples of 16 bytes
      check({40, 8}, 257, 2);
    }
  }
  ProductsOfRows large(weights.view(), {4096, 4104, 72}, 33, DType::kBF16, /*has_bias=*/false);
  const int64_t before = emulatedCublasLtNumProducts();
  const std::vector<std::vector<float>> together = large.Run(kernel_);
  EXPECT_EQ(emulatedCublasLtNumProducts() - before, 2);
  EXPECT_EQ(together, large.RunEach(kernel_));
}

// By the kernel of the table, whose tests find what is written behind its workspace.
TEST_F(CublasLtProduct, HasRoomForResultsOfJoinedMatrices) {
  const ops::OpDefinition op = OnGpu<LinearKernels>(ops::LinearOp());
  const ops::Kernel& kernel = *std::ranges::find(op.kernels, "cublaslt", &ops::Kernel::name);
  const TestTensor weights = Weights(DType::kBF16, 104, 32);
  ProductsOfRows products(weights.view(), {40, 40, 24}, 256, DType::kBF16, /*has_bias=*/true);
  const int64_t before = emulatedCublasLtNumProducts();
  const std::vector<std::vector<float>> together = products.Run(kernel);
  EXPECT_EQ(emulatedCublasLtNumProducts() - before, 1);
  EXPECT_EQ(together, products.RunEach(kernel));
}

// Heads of results are outputs as well, and what is joined may begin behind larger matrices.
TEST_F(CublasLtProduct, PlansForResultsOfJoinedMatrices) {
  const auto bytes = [](const std::vector<std::vector<int64_t>>& shapes) {
    std::vector<TensorView> ys;
    for (const std::vector<int64_t>& shape : shapes) {
      ys.push_back(TensorView::Dense(nullptr, DType::kBF16, {}));
      for (const int64_t size : shape) ys.back().shape[static_cast<size_t>(ys.back().rank++)] = size;
    }
    return JoinedProducts::Bytes(/*rows=*/300, ys) / int64_t{256 * sizeof(float)};
  };
  EXPECT_EQ(bytes({{300, 32, 128}, {300, 8, 128}, {300, 8, 128}}), 6144);
  EXPECT_EQ(bytes({{300, 3000}, {300, 1000}, {300, 104}, {300, 56}, {300, 56}, {300, 50000}}),
            104 + 56 + 56 + 50000);
  EXPECT_EQ(bytes({{300, 4104}, {300, 3000}, {300, 50000}}), 3000 + 50000);
  EXPECT_EQ(bytes({{300, 50000}}), 0);
  EXPECT_EQ(bytes({{300, 5000}, {300, 5000}}), 0);
}

// The emulated library multiplies no single output.
TEST_F(CublasLtProduct, LeavesToTensorCoresWhatTheLibraryCannot) {
  const TestTensor weights = Weights(DType::kBF16, 1, 64);
  AlignedProduct product(40, weights.view(), DType::kF32);
  EXPECT_EQ(Count(product, kernel_, 40), 0);
}

TEST_F(CublasLtProduct, RemembersAlgorithms) {
  const TestTensor weights = Weights(DType::kBF16, 48, 96);
  AlignedProduct product(57, weights.view(), DType::kF32);
  const int64_t before = emulatedCublasLtNumSearches();
  for (int64_t rows : {55, 56, 57, 55, 56, 57}) Count(product, kernel_, rows);
  EXPECT_EQ(emulatedCublasLtNumSearches() - before, 3);
}

// A product on a stream: x, W, y and the workspace in memory of the GPU.
struct ProductOnStream {
  ProductOnStream() {
    product.workspace = memory.data() + 3 * kMatrixBytes;
    product.x = memory.data();
    product.w = memory.data() + kMatrixBytes;
    product.y = memory.data() + 2 * kMatrixBytes;
  }

  Status Finish() {
    const std::unique_ptr<device::Event> done = gpu->NewEvent();
    stream->Record(*done);
    return done->Synchronize();
  }

  static constexpr int64_t kSize = 64, kMatrixBytes = kSize * kSize * 2;
  std::unique_ptr<GpuDevice> gpu = *GpuDevice::Open(0);
  device::DeviceMemory memory =
      *gpu->Allocate(3 * kMatrixBytes + kCublasLtWorkspaceBytes, "a product");
  std::unique_ptr<device::Stream> stream = *gpu->NewStream();
  GpuStream& native = static_cast<GpuStream&>(*stream);
  MatrixProduct product = {.rows = kSize,
                           .outputs = kSize,
                           .columns = kSize,
                           .x_stride = kSize,
                           .w_stride = kSize,
                           .y_stride = kSize};
};

TEST_F(CublasLtProduct, IsReplayedFromGraphs) {
  ProductOnStream on;
  const std::vector<uint16_t> ones(64 * 64, 0x3f80);
  std::vector<uint16_t> y(ones.size());
  on.stream->BeginCapture();
  EXPECT_TRUE(on.native.Multiply(on.product));
  const std::unique_ptr<device::Graph> graph = *on.stream->EndCapture();
  on.stream->CopyToDevice(on.memory.data(), std::as_bytes(std::span(ones)));
  on.stream->CopyToDevice(on.memory.data() + ProductOnStream::kMatrixBytes,
                          std::as_bytes(std::span(ones)));
  on.stream->Replay(*graph);
  on.stream->CopyToHost(std::as_writable_bytes(std::span(y)),
                        on.memory.data() + 2 * ProductOnStream::kMatrixBytes);
  const Status status = on.Finish();
  EXPECT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(y, std::vector<uint16_t>(ones.size(), 0x4280));  // 64
}

TEST_F(CublasLtProduct, LeavesToOthersWhatTheLibraryFindsNoAlgorithmFor) {
  ProductOnStream on;
  on.product.y_stride = 63;
  EXPECT_FALSE(on.native.Multiply(on.product));
  EXPECT_TRUE(on.Finish().ok());
}

TEST_F(CublasLtProduct, AFailedProductIsTheStreamsError) {
  ProductOnStream on;
  on.product.workspace += 16;
  EXPECT_TRUE(on.native.Multiply(on.product));
  EXPECT_EQ(on.Finish().message(),
            "cuBLASLt failed to multiply: an invalid value (--deterministic disables it)");
}

TEST_F(CublasLtProduct, IsSupportedWhereTheLibraryIsInstalled) {
  const TestTensor weights = Weights(DType::kBF16, 8, 32);
  const AlignedProduct product(1, weights.view(), DType::kF32);
  EXPECT_TRUE(FitsCublasLt(GpuCapabilities(), product.x.view(), weights.view()));
  EmulatedGpu::Configure({.has_cublas_lt = false});
  EXPECT_FALSE(FitsCublasLt(GpuCapabilities(), product.x.view(), weights.view()));
  ProductOnStream on;
  EXPECT_FALSE(on.native.Multiply(on.product));
  EXPECT_TRUE(on.Finish().ok());
}

}  // namespace
}  // namespace pagemill::gpu
