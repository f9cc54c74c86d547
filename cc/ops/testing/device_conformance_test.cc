// The conformance checks of all ops on the test device, which has separate memory, as a vendor tree
// runs them on its device.
#include "cc/ops/testing/device_conformance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cc/device/capabilities.h"
#include "cc/device/testing/test_device.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/testing/test_device_ops.h"

namespace pagemill::ops {
namespace {

using conformance::TestedDevice;

device::testing::TestDevice& Device() {
  static device::testing::TestDevice device;
  return device;
}

TestedDevice& Tested() {
  static TestedDevice tested(Device());
  return tested;
}

template <size_t kOp>
const Kernel& DeviceKernel() {
  return testing::TestDeviceOps()[kOp].kernels[0];
}

constexpr size_t kMaxOps = 64;  // more than there are

template <size_t... kOps>
constexpr auto KernelsOnHost(std::index_sequence<kOps...>) {
  return std::array{&conformance::OnHost<DeviceKernel<kOps>, Tested>...};
}

// The device's op, wrapped to run on host memory, and the CPU reference.
class OpOnHost {
 public:
  explicit OpOnHost(std::string_view name) {
    constexpr auto kKernels = KernelsOnHost(std::make_index_sequence<kMaxOps>());
    const std::span<const OpDefinition> ops = testing::TestDeviceOps();
    const auto found = std::ranges::find(ops, name, &OpDefinition::op);
    PAGEMILL_CHECK(found != ops.end());
    kernels_ = {kKernels[static_cast<size_t>(found - ops.begin())](),
                conformance::ReferenceKernel(**FindOp(CpuOps(), name))};
    definition_ = *found;
    definition_.kernels = kernels_;
  }
  OpOnHost(const OpOnHost&) = delete;
  const OpDefinition& definition() const { return definition_; }

 private:
  std::vector<Kernel> kernels_;
  OpDefinition definition_;
};

using Body = void (*)(const OpDefinition& op, const device::Capabilities& caps);

struct OpBody {
  std::string_view op;
  Body body;
};

constexpr OpBody kBodies[] = {
    {"activation", CheckActivationConformance},
    {"add", CheckAddConformance},
    {"adjust_logits", CheckAdjustLogitsConformance},
    {"argmax", CheckArgmaxConformance},
    {"attention", CheckAttentionConformance},
    {"causal_conv", CheckCausalConvConformance},
    {"compress_tokens", CheckCompressTokensConformance},
    {"concat", CheckConcatConformance},
    {"count_tokens", CheckCountTokensConformance},
    {"depthwise_conv", CheckDepthwiseConvConformance},
    {"draw_tokens", CheckDrawTokensConformance},
    {"embedding", CheckEmbeddingConformance},
    {"gated_activation", CheckGatedActivationConformance},
    {"gated_delta", CheckGatedDeltaConformance},
    {"gated_recurrence", CheckGatedRecurrenceConformance},
    {"head_linear", CheckHeadLinearConformance},
    {"kv_write", CheckKvWriteConformance},
    {"latent_attention", CheckLatentAttentionConformance},
    {"latent_write", CheckLatentWriteConformance},
    {"layer_norm", CheckLayerNormConformance},
    {"linear", CheckLinearConformance},
    {"mask_tokens", CheckMaskTokensConformance},
    {"matrix_wkv", CheckMatrixWkvConformance},
    {"merge_attention", CheckMergeAttentionConformance},
    {"mix_streams", CheckMixStreamsConformance},
    {"moe_combine", CheckMoeCombineConformance},
    {"moe_route", CheckMoeRouteConformance},
    {"paged_attention", CheckPagedAttentionConformance},
    {"pool", CheckPoolConformance},
    {"rms_norm", CheckRmsNormConformance},
    {"rotary", CheckRotaryConformance},
    {"scale", CheckScaleConformance},
    {"scatter_rows", CheckScatterRowsConformance},
    {"score_tokens", CheckScoreTokensConformance},
    {"select_rows", CheckSelectRowsConformance},
    {"select_tokens", CheckSelectTokensConformance},
    {"selective_scan", CheckSelectiveScanConformance},
    {"sparse_relu", CheckSparseReluConformance},
    {"split", CheckSplitConformance},
    {"state_space_scan", CheckStateSpaceScanConformance},
    {"stream_weights", CheckStreamWeightsConformance},
    {"take_tokens", CheckTakeTokensConformance},
    {"unfold", CheckUnfoldConformance},
    {"wkv", CheckWkvConformance},
};

class DeviceConformance : public ::testing::TestWithParam<OpBody> {};

TEST_P(DeviceConformance, Holds) {
  const int64_t before = Device().num_enqueued();
  const OpOnHost op(GetParam().op);
  GetParam().body(op.definition(), {});
  EXPECT_GT(Device().num_enqueued(), before);
}

INSTANTIATE_TEST_SUITE_P(Ops, DeviceConformance, ::testing::ValuesIn(kBodies),
                         [](const auto& info) { return std::string(info.param.op); });

TEST(DeviceConformance, GroupedLinear) {
  const OpOnHost op("grouped_linear"), linear("linear");
  CheckGroupedLinearConformance(op.definition(), linear.definition(), {});
}

TEST(DeviceConformance, ScaledWeights) {
  const OpOnHost op("linear");
  CheckScaledConformance(op.definition(), {});
}

TEST(DeviceConformance, RotaryKvWrite) {
  const OpOnHost kv_write("kv_write"), rotary("rotary"), both("rotary_kv_write");
  const OpDefinition ops[] = {kv_write.definition(), rotary.definition(), both.definition()};
  CheckRotaryKvWriteConformance(ops, {});
}

}  // namespace
}  // namespace pagemill::ops
