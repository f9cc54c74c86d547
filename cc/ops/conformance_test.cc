// Tests of the test utilities: they detect the errors that they are made for.
#include "cc/ops/conformance.h"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <vector>

#include "cc/ops/block_format/block_format.h"
#include "cc/ops/kernel_support.h"

namespace pagemill::ops::conformance {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(Random, IsTheSameEverywhereAndUniform) {
  Random random(42);
  EXPECT_EQ(random.Next(), 0xbdd732262feb6e95u);  // splitmix64's published sequence
  double sum = 0;
  double squares = 0;
  for (int i = 0; i < 10000; ++i) {
    const float value = random.Uniform(-1, 1);
    ASSERT_GE(value, -1);
    ASSERT_LT(value, 1);
    sum += value;
    const double normal = random.Normal();
    squares += normal * normal;
    const int64_t integer = random.Int(-2, 3);
    ASSERT_GE(integer, -2);
    ASSERT_LE(integer, 3);
  }
  EXPECT_NEAR(sum / 10000, 0, 0.03);      // 5 standard deviations
  EXPECT_NEAR(squares / 10000, 1, 0.07);  // 5 standard deviations
}

TEST(TestTensor, StartsPoisonedAndKeepsRowsApart) {
  TestTensor tensor(DType::kF32, {3, 5}, {.misalign_bytes = 4, .row_padding_bytes = 8});
  EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.view().data) % 64, 4u);
  EXPECT_EQ(tensor.view().row_stride_bytes, 28);
  for (float value : tensor.ToFloat()) EXPECT_TRUE(std::isnan(value));
  EXPECT_TRUE(tensor.GuardsIntact());
  std::vector<float> values(15);
  for (int i = 0; i < 15; ++i) values[i] = static_cast<float>(i);
  tensor.Set(values);
  EXPECT_EQ(tensor.ToFloat(), values);
  EXPECT_EQ(tensor.Bytes().size(), 60u);
  EXPECT_TRUE(tensor.GuardsIntact());
}

TEST(TestTensor, DetectsWritesOutsideItsRows) {
  for (int64_t offset : {-1, 20, 27, 28 * 3 - 8}) {
    TestTensor tensor(DType::kF32, {3, 5}, {.row_padding_bytes = 8});
    tensor.view().Row<uint8_t>(0)[offset] ^= 1;
    EXPECT_FALSE(tensor.GuardsIntact()) << offset;
  }
}

TEST(TestTensor, FillsEveryDTypeWithFiniteValuesOfTheRange) {
  for (DType dtype : kWeightDTypes) {
    TestTensor tensor(dtype, {4, 512});
    Random random(7);
    tensor.FillUniform(random, -2, 2);
    float largest = 0;
    for (int64_t row = 0; row < 4; ++row) {
      std::vector<float> values(512);
      DequantizeRow(dtype, tensor.view().Row<uint8_t>(row), 512, values.data());
      for (float value : values) largest = std::max(largest, std::abs(value));
    }
    EXPECT_GT(largest, 1) << Info(dtype).name;
    EXPECT_LE(largest, 4.01) << Info(dtype).name;  // scale and minimum each reach 2, rounded
    EXPECT_TRUE(tensor.GuardsIntact()) << Info(dtype).name;
  }
}

TEST(AllClose, IsStrictAboutNanAndInfinity) {
  const std::vector<float> expected = {1, -2, 0};
  EXPECT_TRUE(AllClose(expected, expected, {}));
  EXPECT_TRUE(AllClose(std::vector<float>{1.01f, -2.02f, 0}, expected, {.rel = 0.011}));
  EXPECT_FALSE(AllClose(std::vector<float>{1.01f, -2.02f, 0.001f}, expected, {.rel = 0.011}));
  EXPECT_TRUE(AllClose(std::vector<float>{1, -2, 0.001f}, expected, {.abs = 0.0011}));
  EXPECT_FALSE(AllClose(std::vector<float>{1, kNan, 0}, expected, {.abs = 1e30, .rel = 1e30}));
  EXPECT_FALSE(AllClose(std::vector<float>{1, kInf, 0}, expected, {.abs = 1e30, .rel = 1e30}));
  EXPECT_FALSE(AllClose(std::vector<float>{1, -2}, expected, {.abs = 1e30}));
  const std::vector<float> special = {kNan, kInf, -kInf};
  EXPECT_TRUE(AllClose(special, special, {}));
  EXPECT_FALSE(AllClose(std::vector<float>{kNan, kInf, kInf}, special, {.abs = 1e30, .rel = 1}));
  EXPECT_FALSE(AllClose(std::vector<float>{kNan, 1e38f, -kInf}, special, {.abs = 1e30, .rel = 1}));
  EXPECT_FALSE(AllClose(std::vector<float>{1, kInf, -kInf}, special, {.abs = 1e30, .rel = 1}));
}

TEST(BitEqual, DistinguishesZeros) {
  EXPECT_TRUE(BitEqual(std::vector<float>{0.f, kNan}, std::vector<float>{0.f, kNan}));
  EXPECT_FALSE(BitEqual(std::vector<float>{0.f}, std::vector<float>{-0.f}));
  EXPECT_FALSE(BitEqual(std::vector<float>{0.f}, std::vector<float>{}));
}

TEST(NormalizedSquaredError, IsRelativeToTheExpectedValues) {
  EXPECT_EQ(NormalizedSquaredError({}, {}), 0);
  EXPECT_DOUBLE_EQ(NormalizedSquaredError(std::vector<float>{3, 5}, std::vector<float>{3, 4}),
                   1.0 / 25);
}

TEST(FewIfEmulated, LeavesOutWhatIsBetweenOnEmulatedCpusAlone) {
  const bool is_emulated = std::getenv("PAGEMILL_TEST_EMULATED_CPU") != nullptr;
  const std::vector<int32_t> all = {1, 7, 16}, few = {1, 16};
  EXPECT_EQ(FewIfEmulated({1, 7, 16}), is_emulated ? few : all);
  EXPECT_EQ(ThreadCounts({}).size(), is_emulated ? 1u : 2u);
}

int64_t SixteenBytes(const OpCall&, int32_t) { return 16; }
void UseWorkspace(const OpCall&, KernelContext& context) {
  EXPECT_EQ(context.workspace.size(), 16u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(context.workspace.data()) % 64, 0u);
  EXPECT_TRUE(std::isnan(*reinterpret_cast<const float*>(context.workspace.data())));
}
void OverrunWorkspace(const OpCall&, KernelContext& context) {
  context.workspace.data()[16] = std::byte{0};
}

TEST(RunKernel, PoisonsAndGuardsTheWorkspace) {
  static constexpr Kernel kGood{"twist", "good", 0, OnEveryCpu, UseWorkspace, SixteenBytes};
  static constexpr Kernel kBad{"twist", "bad", 0, OnEveryCpu, OverrunWorkspace, SixteenBytes};
  static device::ThreadPool pool({.num_threads = 1});
  RunKernel(kGood, {}, pool);
  EXPECT_NONFATAL_FAILURE(RunKernel(kBad, {}, pool), "wrote past its workspace of 16 bytes");
}

}  // namespace
}  // namespace pagemill::ops::conformance
