#include <gtest/gtest.h>

#include <string>

#include "cc/device/capabilities.h"
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/linear/linear.h"
#include "cc/tensor/quantized.h"

namespace pagemill::ops {
namespace {

TEST(ScaledLinear, Conforms) { CheckScaledConformance(LinearOp(), device::DetectCapabilities()); }

TensorView View(DType dtype, std::initializer_list<int64_t> dims) {
  return TensorView::Dense(nullptr, dtype, dims);
}

// The kernel of a call with weights of `dtype` under the default precision of activations.
std::string Automatic(DType dtype, int64_t k, bool quantized_activations,
                      const device::Capabilities& caps) {
  const QuantizedParts parts = {
      .format = {.block_columns = k, .quantized_activations = quantized_activations},
      .values = View(dtype, {32, k}),
      .scales = View(DType::kF32, {32, 1}),
      .zeros = {},
      .groups = {}};
  TensorView weight = parts.values;
  weight.parts = &parts;
  const TensorView inputs[] = {View(DType::kF32, {5, k}), weight};
  const TensorView outputs[] = {View(DType::kF32, {5, 32})};
  const Attributes attributes;
  const OpCall call{inputs, outputs, &attributes, nullptr};
  EXPECT_TRUE(LinearOp().check(call).ok()) << LinearOp().check(call).ToString();
  const auto kernel =
      ChooseKernel(LinearOp(), caps, call, {.activations = LinearOp().automatic_activations(call)});
  return std::string((*kernel)->name);
}

#if defined(__x86_64__)
TEST(ScaledLinear, ActivationsAreInt8IfWeightsWereMadeForIt) {
  device::Capabilities caps;
  caps.cpu.avx2 = caps.cpu.avx512 = caps.cpu.avx512_vnni = caps.cpu.avx512_bf16 = true;
  EXPECT_EQ(Automatic(DType::kI8, 64, true, caps), "avx512_vnni");
  EXPECT_EQ(Automatic(DType::kI8, 64, false, caps), "avx512");
  EXPECT_EQ(Automatic(DType::kI8, kMaxInt8K, true, caps), "avx512_vnni");
  EXPECT_EQ(Automatic(DType::kI8, kMaxInt8K + 1, true, caps), "avx512");
  EXPECT_EQ(Automatic(DType::kF8E4M3, 64, false, caps), "avx512_bf16");
  EXPECT_EQ(Automatic(DType::kF8E4M3, 64, true, caps), "avx512_bf16");
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
