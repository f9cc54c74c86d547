// Products by oneDNN on the CPU device: what the library multiplies, that the results are those of
// the contract, and that slices of decoded weights change nothing. CPUs without AVX-512 have no
// products of bf16 and f16, which this tree's own kernel then multiplies.
#include "sycl/ops/linear/onednn_product.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cc/device/thread_pool.h"
#include "cc/ops/conformance.h"
#include "cc/ops/linear/linear.h"
#include "cc/ops/op.h"
#include "cc/ops/quantized/quantized.h"
#include "cc/ops/testing/device_conformance.h"
#include "sycl/device/testing/cpu_device.h"
#include "sycl/ops/kernels.h"

namespace pagemill::sycl {
namespace {

using ops::conformance::OnHost;
using ops::conformance::Random;
using ops::conformance::TestTensor;

SyclDevice& Device() {
  // Never closed: the runtime may be gone when static objects are destroyed.
  static SyclDevice* const device = testing::OpenCpuDevice().release();
  return *device;
}

ops::conformance::TestedDevice& Tested() {
  static auto* const tested = new ops::conformance::TestedDevice(Device());
  return *tested;
}

constexpr OnednnLimits kDefaults;
constexpr OnednnLimits kSmallSlices = {.slice_bytes = 16 << 10};
bool is_multiplied = false;  // by the library, in the latest run

// A kernel with these limits, which leaves y as it is if the library does not multiply.
template <const OnednnLimits& kLimits>
const ops::Kernel& KernelOf() {
  static const ops::Kernel kernel = {
      .op = "linear",
      .name = "limited",
      .run =
          [](const ops::OpCall& call, ops::KernelContext& context) {
            is_multiplied =
                MultiplyByOnednn(call.inputs[0], call.inputs[1], call.inputs[2].Data<const float>(),
                                 call.outputs[0], context, kLimits);
          },
      .workspace_bytes =
          [](const ops::OpCall& call, int32_t) {
            return OnednnProductBytes(call.inputs[0], call.inputs[1], kLimits);
          }};
  return kernel;
}

// y = x W^T + bias, random, with rows that are apart from each other.
struct ProductOnHost {
  ProductOnHost(int64_t n, DType weights, int64_t outputs, int64_t columns, DType act = DType::kF32,
                int64_t misalign_bytes = 0)  // of y
      : w(weights, {outputs, columns}),
        x(act, {n, columns}, {.row_padding_bytes = 64}),
        bias(DType::kF32, {outputs}),
        y(DType::kF32, {n, outputs}, {misalign_bytes, /*row_padding_bytes=*/64}) {
    Random random(static_cast<uint64_t>(outputs + columns));
    w.FillUniform(random, -1, 1);
    x.FillUniform(random, -2, 2);
    bias.FillUniform(random, -1, 1);
  }

  bool IsSupported(const ops::Kernel& kernel) const {
    const TensorView inputs[] = {x.view(), w.view(), bias.view()}, outputs[] = {y.view()};
    return kernel.supports(Device().capabilities(),
                           {.inputs = inputs, .outputs = outputs, .attributes = &attributes});
  }

  std::vector<float> Run(const ops::Kernel& kernel) {
    device::ThreadPool pool({.num_threads = 1});
    const TensorView inputs[] = {x.view(), w.view(), bias.view()}, outputs[] = {y.view()};
    y.Poison();
    ops::conformance::RunKernel(
        kernel, {.inputs = inputs, .outputs = outputs, .attributes = &attributes}, pool);
    EXPECT_TRUE(y.GuardsIntact());
    return y.ToFloat();
  }

  // `bound` is relative to the sum of magnitudes.
  void CheckValues(const std::vector<float>& got, double bound) const {
    const int64_t outputs = w.view().shape[0], columns = w.view().shape[1];
    const std::vector<float> of_x = x.ToFloat(), of_bias = bias.ToFloat();
    std::vector<float> row(static_cast<size_t>(columns));
    for (int64_t m = 0; m < outputs; ++m) {
      ops::ReadWeightRow(w.view(), /*matrix=*/0, m, row.data());
      for (size_t n = 0; n * static_cast<size_t>(outputs) < got.size(); ++n) {
        double sum = of_bias[static_cast<size_t>(m)], magnitude = std::abs(sum);
        for (size_t k = 0; k < row.size(); ++k) {
          const double product = double{row[k]} * of_x[n * row.size() + k];
          sum += product;
          magnitude += std::abs(product);
        }
        const float y_nm = got[n * static_cast<size_t>(outputs) + static_cast<size_t>(m)];
        ASSERT_TRUE(std::abs(y_nm - sum) <= bound * magnitude)
            << "y[" << n << ", " << m << "] is " << y_nm << ", expected " << sum;
      }
    }
  }

  TestTensor w, x, bias, y;
  ops::Attributes attributes;
};

// Sums of K products in f32, in chains of any length.
double BoundInF32(int64_t k) { return (static_cast<double>(k) + 8) * 0x1p-24; }

const ops::Kernel& Whole() {
  static const ops::Kernel kernel = OnHost<KernelOf<kDefaults>, Tested>();
  return kernel;
}

TEST(OnednnProduct, TakesManyRowsInF32) {
  for (const DType weights : {DType::kF32, DType::kBF16, DType::kF16, DType::kQ8_0, DType::kQ4_K}) {
    SCOPED_TRACE(std::string(Info(weights).name));
    ProductOnHost few(32, weights, 40, 256), many(33, weights, 40, 256);
    few.Run(Whole());
    EXPECT_FALSE(is_multiplied);
    many.CheckValues(many.Run(Whole()), BoundInF32(256));
    EXPECT_TRUE(is_multiplied);
  }
}

TEST(OnednnProduct, DecodesWeightsInSlices) {
  const ops::Kernel in_slices = OnHost<KernelOf<kSmallSlices>, Tested>();
  ProductOnHost product(50, DType::kQ8_0, 300, 64);  // of 128, 128 and 44 outputs
  product.CheckValues(product.Run(in_slices), BoundInF32(64));
  EXPECT_TRUE(is_multiplied);
}

TEST(OnednnProduct, LeavesUnalignedOperandsToOthers) {
  ProductOnHost product(40, DType::kF32, 24, 64, DType::kF32, /*misalign_bytes=*/4);
  product.Run(Whole());
  EXPECT_FALSE(is_multiplied);
}

template <size_t kIndex>
const ops::Kernel& KernelOfTheOp() {
  return LinearKernels()[kIndex];
}

// By the library, or by this tree's own kernel if the CPU does not have the types.
TEST(OnednnProduct, TheOpHasActivationsOf16Bits) {
  const ops::Kernel as_stored = OnHost<KernelOfTheOp<0>, Tested>();
  const ops::Kernel rounded = OnHost<KernelOfTheOp<1>, Tested>();
  for (const DType act : {DType::kBF16, DType::kF16}) {
    SCOPED_TRACE(std::string(Info(act).name));
    ProductOnHost floats(70, act, 130, 256, act), blocks(70, DType::kQ4_K, 130, 256, act);
    EXPECT_EQ(as_stored.activations, ops::Precision::kF32);
    EXPECT_TRUE(floats.IsSupported(as_stored) && !floats.IsSupported(rounded));
    EXPECT_TRUE(!blocks.IsSupported(as_stored) && blocks.IsSupported(rounded));
    floats.CheckValues(floats.Run(as_stored), BoundInF32(256));
    blocks.CheckValues(blocks.Run(rounded), ops::LinearBf16ErrorBound(256));
  }
}

}  // namespace
}  // namespace pagemill::sycl
