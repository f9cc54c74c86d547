// The driver with kernels that keep state in registers between products: AMX over emulated tiles.
#include "cc/ops/grouped_linear/grouped_driver.h"

#include <gtest/gtest.h>

#include "cc/device/capabilities.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/grouped_linear/grouped_linear.h"
#include "cc/ops/kernel_support.h"
#include "cc/ops/linear/linear.h"
#include "cc/ops/linear/linear_amx_inl.h"
#include "cc/ops/linear/packed_gemm.h"
#include "cc/ops/tiles/emulated_tiles.h"

namespace pagemill::ops::grouped_linear {
namespace {

constexpr linear::PackedGemm kEmulated = linear::AmxBf16<EmulatedTiles>::kKernels;

constexpr WeightPacking kLinearPacking = linear::PackingOfGemm<&kEmulated>("tiles");
constexpr WeightPacking kStackPacking = {
    .layout = "tiles",
    .inputs = 1u << WeightOperand(0) | 1u << WeightOperand(1),
    .bytes = [](const TensorView& w) { return PackedStackBytes(kEmulated, w); },
    .pack = [](const TensorView& w, std::byte* packed,
               device::ThreadPool& pool) { return PackStack(kEmulated, w, packed, pool); }};

TEST(GroupedDriver, TilesConform) {
  const Kernel linear_rows[] = {linear::PackedKernel<&kEmulated>(
                                    "emulated", 1,
                                    [](const device::Capabilities&, const OpCall& call) {
                                      return HasF32Activations(call) &&
                                             call.inputs[1].dtype == DType::kBF16;
                                    },
                                    Precision::kBf16, &kLinearPacking),
                                conformance::ReferenceKernel(LinearOp())};
  const Kernel kernels[] = {
      {.op = "grouped_linear",
       .name = "emulated",
       .priority = 1,
       .supports =
           [](const device::Capabilities&, const OpCall& call) {
             return HasF32Activations(call) && call.inputs[WeightOperand(0)].dtype == DType::kBF16;
           },
       .run = [](const OpCall& call,
                 KernelContext& context) { grouped_linear::RunPacked(kEmulated, call, context); },
       .workspace_bytes =
           [](const OpCall& call, int32_t threads) {
             return grouped_linear::PackedWorkspaceBytes(kEmulated, call, threads);
           },
       .activations = Precision::kBf16,
       .packing = &kStackPacking},
      conformance::ReferenceKernel(GroupedLinearOp())};
  CheckGroupedLinearConformance({"grouped_linear", GroupedLinearOp().check, kernels},
                                {"linear", LinearOp().check, linear_rows}, device::Capabilities());
  EXPECT_FALSE(EmulatedTiles::Configured());
}

}  // namespace
}  // namespace pagemill::ops::grouped_linear
