#include "cc/ops/linear/linear.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "cc/device/capabilities.h"
#include "cc/ops/block_format/block_format.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/linear/packed_gemm_kernels.h"

namespace pagemill::ops {
namespace {

using conformance::Random;
using conformance::TestTensor;

TEST(Linear, Conformance) { CheckLinearConformance(LinearOp(), device::DetectCapabilities()); }

TEST(Linear, TableHasTheKernelsOfThisMachine) {
  device::Capabilities caps;
  TestTensor x(DType::kF32, {1, 32}), w(DType::kQ4_1, {4, 32}), y(DType::kF32, {1, 4});
  const TensorView inputs[] = {x.view(), w.view()};
  const TensorView outputs[] = {y.view()};
  const OpCall call{.inputs = inputs, .outputs = outputs};
  EXPECT_EQ((*ChooseKernel(LinearOp(), caps, call))->name, "portable");
  EXPECT_EQ((*ChooseKernel(LinearOp(), caps, call, {.name = "reference"}))->name, "reference");
#if defined(__x86_64__)
  caps.cpu.avx2 = true;
  const auto within = [&](Precision coarsest) {
    return (*ChooseKernel(LinearOp(), caps, call, {.activations = coarsest}))->name;
  };
  EXPECT_EQ(within(Precision::kInt8Block), "avx2_int8");
  EXPECT_EQ(within(Precision::kMixedBlock), "avx2_int8_mixed");
  EXPECT_EQ(within(Precision::kF32), "avx2");
  caps.cpu.avx_vnni = true;
  EXPECT_EQ(within(Precision::kInt8Block), "avx_vnni_int8");
  EXPECT_EQ(within(Precision::kMixedBlock), "avx_vnni_mixed");
  caps.cpu.avx_vnni = false;
  caps.cpu.avx512 = true;
  EXPECT_EQ(within(Precision::kInt8Block), "avx2_int8");
  EXPECT_EQ(within(Precision::kMixedBlock), "avx2_int8_mixed");
  EXPECT_EQ(within(Precision::kF32), "avx512");
  caps.cpu.avx512_vnni = true;
  EXPECT_EQ((*ChooseKernel(LinearOp(), caps, call))->name, "avx512_vnni");
  EXPECT_EQ(within(Precision::kInt8Block), "avx512_vnni");
  EXPECT_EQ(within(Precision::kMixedBlock), "avx512_vnni_mixed");
  EXPECT_EQ(within(Precision::kF32), "avx512");
  TestTensor plain(DType::kBF16, {4, 32});
  const TensorView plain_inputs[] = {x.view(), plain.view()};
  const auto for_bf16 = [&](Precision coarsest) {
    const OpCall plain_call{.inputs = plain_inputs, .outputs = outputs};
    return (*ChooseKernel(LinearOp(), caps, plain_call, {.activations = coarsest}))->name;
  };
  EXPECT_EQ(for_bf16(Precision::kInt8Block), "avx512");
  caps.cpu.avx512_bf16 = true;
  EXPECT_EQ(for_bf16(Precision::kMixedBlock), "avx512_bf16");
  caps.cpu.amx_bf16 = true;
  EXPECT_EQ(for_bf16(Precision::kMixedBlock), "amx_bf16");
  EXPECT_EQ(for_bf16(Precision::kInt8Block), "amx_bf16");
  EXPECT_EQ(for_bf16(Precision::kF32), "avx512");
  caps.cpu.amx_int8 = true;
  EXPECT_EQ(within(Precision::kInt8Block), "avx512_vnni");
  EXPECT_EQ(within(Precision::kMixedBlock), "avx512_vnni_mixed");
#elif defined(__aarch64__)
  TestTensor plain(DType::kBF16, {4, 32});
  const TensorView plain_inputs[] = {x.view(), plain.view()};
  const OpCall plain_call{.inputs = plain_inputs, .outputs = outputs};
  caps.cpu.asimd_dotprod = true;
  const auto within = [&](Precision coarsest) {
    return (*ChooseKernel(LinearOp(), caps, call, {.activations = coarsest}))->name;
  };
  EXPECT_EQ(within(Precision::kInt8Block), "asimd_dotprod");
  EXPECT_EQ(within(Precision::kMixedBlock), "asimd_dotprod_int16");
  EXPECT_EQ(within(Precision::kF32), "portable");
  EXPECT_EQ((*ChooseKernel(LinearOp(), caps, plain_call))->name, "portable");
  caps.cpu.asimd_i8mm = true;
  EXPECT_EQ(within(Precision::kInt8Block), "asimd_i8mm");
  EXPECT_EQ(within(Precision::kMixedBlock), "asimd_i8mm_int16");
  EXPECT_EQ(within(Precision::kF32), "portable");
  caps.cpu.asimd_bf16 = true;
  EXPECT_EQ((*ChooseKernel(LinearOp(), caps, plain_call))->name, "asimd_bf16");
  const KernelLimits exact = {.activations = Precision::kF32};
  EXPECT_EQ((*ChooseKernel(LinearOp(), caps, plain_call, exact))->name, "portable");
#elif defined(__s390x__)
  caps.cpu.vxe = true;
  const auto within = [&](Precision coarsest) {
    return (*ChooseKernel(LinearOp(), caps, call, {.activations = coarsest}))->name;
  };
  EXPECT_EQ(within(Precision::kInt8Block), "vxe_int8");
  EXPECT_EQ(within(Precision::kMixedBlock), "vxe_int16");
  EXPECT_EQ(within(Precision::kF32), "portable");
#endif
}

// Activations that are whole multiples of their block's scale are exact: kernels that round
// activations then stay within the bound of those that do not.
TEST(Linear, IntegerActivationsAreExact) {
  Random random(5);
  device::ThreadPool pool({.num_threads = 1});
  for (DType dtype : kWeightDTypes) {
    if (!IsBlockFormat(dtype)) continue;
    TestTensor x(DType::kF32, {9, 256}), w(dtype, {5, 256}), y(DType::kF32, {9, 5});
    std::vector<float> integers(9 * 256);
    for (size_t i = 0; i < integers.size(); ++i) {
      integers[i] = i % 32 == 7 ? 127.0f : static_cast<float>(random.Int(-127, 127));
    }
    x.Set(integers);
    w.FillUniform(random, -1, 1);
    const TensorView inputs[] = {x.view(), w.view()};
    const TensorView outputs[] = {y.view()};
    const OpCall call{.inputs = inputs, .outputs = outputs};
    conformance::RunKernel(conformance::ReferenceKernel(LinearOp()), call, pool);
    const std::vector<float> expected = y.ToFloat();
    for (const Kernel* kernel :
         conformance::SupportedKernels(LinearOp(), device::DetectCapabilities(), call)) {
      y.Poison();
      conformance::RunKernel(*kernel, call, pool);
      // Sums of 256 products of up to 127 times about 4, plus minima.
      EXPECT_TRUE(conformance::AllClose(y.ToFloat(), expected,
                                        {.abs = LinearErrorBound(256) * 256 * 127 * 4}))
          << kernel->name << " " << Info(dtype).name;
    }
  }
}

// Blocks of zeros, of numbers too small to divide by, and with infinities give correct results.
TEST(Linear, ExtremeActivations) {
  device::ThreadPool pool({.num_threads = 1});
  Random random(6);
  TestTensor x(DType::kF32, {3, 64}), w(DType::kQ4_1, {5, 64}), y(DType::kF32, {3, 5});
  std::vector<float> values(3 * 64, 0.0f);
  for (int i = 0; i < 64; ++i) values[64 + i] = 1e-42f;
  for (int i = 0; i < 64; ++i) values[128 + i] = 1.0f;
  values[130] = INFINITY;
  x.Set(values);
  w.FillUniform(random, -1, 1);
  const TensorView inputs[] = {x.view(), w.view()};
  const TensorView outputs[] = {y.view()};
  const OpCall call{.inputs = inputs, .outputs = outputs};
  for (const Kernel* kernel :
       conformance::SupportedKernels(LinearOp(), device::DetectCapabilities(), call)) {
    y.Poison();
    conformance::RunKernel(*kernel, call, pool);
    const std::vector<float> out = y.ToFloat();
    for (int m = 0; m < 5; ++m) {
      EXPECT_EQ(out[m], 0.0f) << kernel->name;
      EXPECT_NEAR(out[5 + m], 0.0f, 1e-37f) << kernel->name;
      EXPECT_FALSE(std::isfinite(out[10 + m])) << kernel->name;
    }
  }
}

// Decoders in registers against the portable ones, bit for bit (block_layout.h says why).
void CheckDecoder(linear::DequantizeRows* dequantize, const std::string& name) {
  Random random(3);
  for (DType dtype : kWeightDTypes) {
    const int64_t k = IsBlockFormat(dtype) ? 512 : 301;
    TestTensor row(dtype, {1, k}, {.misalign_bytes = 2});
    TestTensor out(DType::kF32, {1, k}, {.misalign_bytes = 4});
    row.FillUniform(random, -3, 3);
    std::vector<float> expected(k);
    DequantizeRow(dtype, row.view().Row<uint8_t>(0), k, expected.data());
    dequantize(dtype, row.view().Row<uint8_t>(0), k, out.view().Row<float>(0));
    EXPECT_TRUE(conformance::BitEqual(out.ToFloat(), expected)) << name << " " << Info(dtype).name;
    EXPECT_TRUE(out.GuardsIntact()) << name << " " << Info(dtype).name;
  }
}

TEST(Linear, DecodersAgree) {
  CheckDecoder(linear::DequantizePortable, "portable");
#if defined(__x86_64__)
  const device::Capabilities caps = device::DetectCapabilities();
  if (caps.cpu.avx2) CheckDecoder(linear::DequantizeAvx2, "avx2");
  if (caps.cpu.avx512) CheckDecoder(linear::DequantizeAvx512, "avx512");
#endif
}

TEST(Linear, RefusesMatricesThatDoNotGoTogether) {
  TestTensor x(DType::kF32, {2, 32}), y(DType::kF32, {2, 4}), z(DType::kF32, {2, 3});
  TestTensor w(DType::kF32, {4, 32}), u(DType::kF32, {3, 32}), half(DType::kBF16, {3, 32});
  TestTensor wide(DType::kF32, {3, 64}), bias(DType::kF32, {4});
  const auto check = [&](const TestTensor& second, const TestTensor& second_y, TensorView b) {
    const TensorView inputs[] = {x.view(), w.view(), TensorView{}, second.view(), b};
    const TensorView outputs[] = {y.view(), second_y.view()};
    const Attributes none;
    return LinearOp().check({.inputs = inputs, .outputs = outputs, .attributes = &none});
  };
  EXPECT_TRUE(check(u, z, {}).ok()) << check(u, z, {}).ToString();
  EXPECT_FALSE(check(half, z, {}).ok()) << "another dtype";
  EXPECT_FALSE(check(wide, z, {}).ok()) << "rows of another size";
  EXPECT_FALSE(check(u, y, {}).ok()) << "an output of another matrix";
  EXPECT_FALSE(check(u, z, bias.view()).ok()) << "a bias of another matrix";
  const std::vector<TensorView> inputs(1 + 2 * (kMaxMatrices + 1), x.view());
  const std::vector<TensorView> outputs(kMaxMatrices + 1, y.view());
  const Attributes none;
  const OpCall many{.inputs = inputs, .outputs = outputs, .attributes = &none};
  EXPECT_FALSE(LinearOp().check(many).ok()) << "too many";
}

// A NaN in one row of x affects only the outputs of that row.
TEST(Linear, RowsDoNotMix) {
  Random random(4);
  device::ThreadPool pool({.num_threads = 1});
  TestTensor x(DType::kF32, {7, 64}), w(DType::kQ8_0, {5, 64}), y(DType::kF32, {7, 5});
  x.FillUniform(random, -1, 1);
  w.FillUniform(random, -1, 1);
  x.view().Row<float>(3)[17] = std::nanf("");
  const TensorView inputs[] = {x.view(), w.view()};
  const TensorView outputs[] = {y.view()};
  const OpCall call{.inputs = inputs, .outputs = outputs};
  for (const Kernel* kernel :
       conformance::SupportedKernels(LinearOp(), device::DetectCapabilities(), call)) {
    y.Poison();
    conformance::RunKernel(*kernel, call, pool);
    const std::vector<float> values = y.ToFloat();
    for (int i = 0; i < 35; ++i) EXPECT_EQ(std::isnan(values[i]), i / 5 == 3) << kernel->name;
  }
}

class LinearCheck : public ::testing::Test {
 protected:
  Status Check(const TensorView& x, const TensorView& w, const TensorView& y,
               const TensorView& bias = {}) {
    const TensorView inputs[] = {x, w, bias};
    const TensorView outputs[] = {y};
    const Attributes attributes;
    return LinearOp().check({.inputs = inputs, .outputs = outputs, .attributes = &attributes});
  }
  static TensorView View(DType dtype, std::initializer_list<int64_t> dims) {
    return TensorView::Dense(nullptr, dtype, dims);
  }
  static constexpr DType kF32 = DType::kF32;
};

TEST_F(LinearCheck, AcceptsAnyRankWithTheRightRows) {
  EXPECT_TRUE(Check(View(kF32, {8, 64}), View(DType::kQ4_0, {18, 64}), View(kF32, {8, 9, 2})).ok());
  EXPECT_TRUE(Check(View(kF32, {8, 4, 16}), View(DType::kQ8_0, {18, 64}), View(kF32, {8, 18}),
                    View(kF32, {18}))
                  .ok());
  EXPECT_TRUE(Check(View(kF32, {0, 3}), View(DType::kBF16, {5, 3}), View(kF32, {0, 5})).ok());
}

TEST_F(LinearCheck, NamesTheMismatch) {
  const TensorView w = View(DType::kQ4_0, {18, 64});
  const TensorView x = View(kF32, {8, 64});
  const TensorView y = View(kF32, {8, 18});
  EXPECT_EQ(Check(View(kF32, {8, 32}), w, y).message(),
            "linear: x must be f32 [N=8, K=64*], got f32 [8, 32]");
  EXPECT_EQ(Check(View(DType::kI32, {8, 64}), w, y).message(),
            "linear: x must be f32, bf16 or f16 [N, K=64*], got i32 [8, 64]");
  EXPECT_EQ(Check(x, View(DType::kI8, {18, 64}), y).message(),
            "linear: W must be a weight dtype, got i8");
  EXPECT_EQ(Check(View(kF32, {8, 64}), View(DType::kQ4_K, {18, 64}), y).message(),
            "linear: rows of W have 64 elements, not a multiple of the block of 256 of q4_k");
  EXPECT_EQ(Check(x, w, View(kF32, {8, 17})).message(),
            "linear: y must be f32 [N=8, M=18*], got f32 [8, 17]");
  EXPECT_EQ(Check(x, w, View(kF32, {7, 18})).message(),
            "linear: y must be f32 [N=8, M=18*], got f32 [7, 18]");
  EXPECT_EQ(Check(x, w, y, View(kF32, {64})).message(),
            "linear: bias must be f32 [M=18], got f32 [64]");
  EXPECT_EQ(Check(x, w, y, View(DType::kBF16, {18})).code(), StatusCode::kInvalidArgument);
  const TensorView inputs[] = {x};
  const Attributes attributes;
  EXPECT_FALSE(LinearOp().check({.inputs = inputs, .outputs = {}, .attributes = &attributes}).ok());
}

}  // namespace
}  // namespace pagemill::ops
