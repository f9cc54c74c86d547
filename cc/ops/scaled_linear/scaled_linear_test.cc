#include "cc/ops/scaled_linear/scaled_linear.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "cc/device/capabilities.h"
#include "cc/ops/scaled_linear/scaled_linear_conformance.h"

namespace pagemill::ops {
namespace {

TEST(ScaledLinear, Conforms) {
  CheckScaledLinearConformance(ScaledLinearOp(), device::DetectCapabilities());
}

TensorView View(DType dtype, std::initializer_list<int64_t> dims) {
  return TensorView::Dense(nullptr, dtype, dims);
}

// The message of the op's check for x [5, 64], y [5, 32].
std::string Message(DType dtype, std::initializer_list<int64_t> weight,
                    std::initializer_list<int64_t> scales,
                    const std::vector<std::pair<std::string, double>>& attributes = {}) {
  const TensorView inputs[] = {View(DType::kF32, {5, 64}), View(dtype, weight),
                               View(DType::kF32, scales)};
  const TensorView outputs[] = {View(DType::kF32, {5, 32})};
  Attributes values;
  for (const auto& [name, value] : attributes) values.Set(name, value);
  return ScaledLinearOp().check({inputs, outputs, &values, nullptr}).message();
}

TEST(ScaledLinear, CheckTakesScalesOfRowsAndBlocks) {
  EXPECT_EQ(Message(DType::kI8, {32, 64}, {32, 1}), "");
  EXPECT_EQ(Message(DType::kF8E4M3, {32, 64}, {2, 4}, {{"block_rows", 16}, {"block_columns", 16}}),
            "");
  EXPECT_EQ(
      Message(DType::kF8E4M3, {32, 64}, {1, 1}, {{"block_rows", 128}, {"block_columns", 128}}), "");
}

TEST(ScaledLinear, CheckNamesWhatDoesNotFit) {
  EXPECT_EQ(Message(DType::kU8, {32, 64}, {32, 1}),
            "scaled_linear: W must be i8 or f8_e4m3, got u8");
  EXPECT_EQ(Message(DType::kI8, {32, 64}, {1, 1}),
            "scaled_linear: scales are [1,1], but W is [32,64] in blocks of 1 x 64");
  EXPECT_EQ(Message(DType::kI8, {32, 64}, {16, 2}, {{"block_rows", 2}, {"block_columns", 64}}),
            "scaled_linear: scales are [16,2], but W is [32,64] in blocks of 2 x 64");
  EXPECT_EQ(Message(DType::kI8, {32, 64}, {32, 32}, {{"block_columns", 2}}),
            "scaled_linear: block_columns must be a multiple of 4, got 2");
  EXPECT_NE(Message(DType::kI8, {32, 64}, {32, 1}, {{"int8_activations", 2}}), "");
  EXPECT_NE(Message(DType::kI8, {32, 60}, {32, 1}), "");
}

// Which row runs a call of `dtype` where the user leaves the precision of activations open.
std::string Automatic(DType dtype, int64_t k, bool int8_activations,
                      const device::Capabilities& caps) {
  const TensorView inputs[] = {View(DType::kF32, {5, k}), View(dtype, {32, k}),
                               View(DType::kF32, {32, 1})};
  const TensorView outputs[] = {View(DType::kF32, {5, 32})};
  Attributes attributes;
  if (int8_activations) attributes.Set("int8_activations", 1);
  const OpCall call{inputs, outputs, &attributes, nullptr};
  const auto row = ChooseKernel(ScaledLinearOp(), caps, call,
                                {.activations = ScaledLinearOp().automatic_activations(call)});
  return std::string((*row)->name);
}

#if defined(__x86_64__)
TEST(ScaledLinear, ActivationsAreInt8WhereWeightsWereMadeForIt) {
  device::Capabilities caps;
  caps.cpu.avx2 = caps.cpu.avx512 = caps.cpu.avx512_vnni = caps.cpu.avx512_bf16 = true;
  EXPECT_EQ(Automatic(DType::kI8, 64, true, caps), "avx512_vnni");
  EXPECT_EQ(Automatic(DType::kI8, 64, false, caps), "avx512");
  EXPECT_EQ(Automatic(DType::kI8, kMaxInt8K, true, caps), "avx512_vnni");
  EXPECT_EQ(Automatic(DType::kI8, kMaxInt8K + 1, true, caps), "avx512");
  EXPECT_EQ(Automatic(DType::kF8E4M3, 64, false, caps), "avx512_bf16");
  caps.cpu.amx_int8 = true;
  EXPECT_EQ(Automatic(DType::kI8, 64, true, caps), "amx_int8");
  caps.cpu.avx512_vnni = caps.cpu.avx512_bf16 = false;
  EXPECT_EQ(Automatic(DType::kI8, 64, true, caps), "avx512");
  caps.cpu.avx512 = false;
  EXPECT_EQ(Automatic(DType::kF8E4M3, 64, false, caps), "avx2");
}
#endif

TEST(ScaledLinear, EveryCpuHasAKernel) {
  EXPECT_EQ(Automatic(DType::kI8, 64, true, {}), "portable");
  EXPECT_EQ(Automatic(DType::kF8E4M3, 64, false, {}), "portable");
}

}  // namespace
}  // namespace pagemill::ops
