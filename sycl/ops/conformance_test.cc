// The conformance checks of all ops of this tree, on the CPU device.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cc/device/capabilities.h"
#include "cc/ops/all_reduce_add_rms_norm/all_reduce_add_rms_norm_conformance.h"
#include "cc/ops/conformance.h"
#include "cc/ops/conformance_bodies.h"
#include "cc/ops/testing/adapters_on_device.h"
#include "cc/ops/testing/device_conformance.h"
#include "sycl/device/testing/cpu_device.h"
#include "sycl/testing/sycl_ops.h"

namespace pagemill::sycl {
namespace {

namespace conformance = ops::conformance;

SyclDevice& Device() {
  // Never closed: the runtime may be gone when static objects are destroyed.
  static SyclDevice* const device = testing::OpenCpuDevice().release();
  return *device;
}

conformance::TestedDevice& Tested() {
  static auto* const tested = new conformance::TestedDevice(Device());
  return *tested;
}

constexpr size_t kMaxOps = 64, kMaxKernels = 3;  // of an op

template <size_t kIndex>
const ops::Kernel& DeviceKernel() {
  return SyclOps()[kIndex / kMaxKernels].kernels[kIndex % kMaxKernels];
}

// Kernels on the host are function pointers, so each kernel needs its own instance.
template <size_t... kIndices>
constexpr auto KernelsOnHost(std::index_sequence<kIndices...>) {
  return std::array{&conformance::OnHost<DeviceKernel<kIndices>, Tested>...};
}

// The device's op, wrapped to run on host memory, and the CPU reference.
class OpOnHost {
 public:
  explicit OpOnHost(std::string_view name) {
    constexpr auto kKernels = KernelsOnHost(std::make_index_sequence<kMaxOps * kMaxKernels>());
    const auto found = std::ranges::find(SyclOps(), name, &ops::OpDefinition::op);
    PAGEMILL_CHECK(found != SyclOps().end());
    PAGEMILL_CHECK(found->kernels.size() <= kMaxKernels);
    for (size_t i = 0; i < found->kernels.size(); ++i) {
      const auto op = static_cast<size_t>(found - SyclOps().begin());
      kernels_.push_back(kKernels[op * kMaxKernels + i]());
    }
    kernels_.push_back(conformance::ReferenceKernel(**ops::FindOp(ops::CpuOps(), name)));
    definition_ = *found;
    definition_.kernels = kernels_;
  }
  OpOnHost(const OpOnHost&) = delete;
  const ops::OpDefinition& definition() const { return definition_; }

 private:
  std::vector<ops::Kernel> kernels_;
  ops::OpDefinition definition_;
};

struct OpBody {
  std::string_view op;
  void (*body)(const ops::OpDefinition& op, const device::Capabilities& caps);
};

constexpr OpBody kBodies[] = {
    {"activation", ops::CheckActivationConformance},
    {"add", ops::CheckAddConformance},
    {"add_rms_norm", ops::CheckAddRmsNormConformance},
    {"adjust_logits", ops::CheckAdjustLogitsConformance},
    {"all_gather", ops::CheckAllGatherConformance},
    {"all_reduce", ops::CheckAllReduceConformance},
    {"argmax", ops::CheckArgmaxConformance},
    {"attention", ops::CheckAttentionConformance},
    {"causal_conv", ops::CheckCausalConvConformance},
    {"compress_tokens", ops::CheckCompressTokensConformance},
    {"concat", ops::CheckConcatConformance},
    {"count_tokens", ops::CheckCountTokensConformance},
    {"depthwise_conv", ops::CheckDepthwiseConvConformance},
    {"draw_tokens", ops::CheckDrawTokensConformance},
    {"embedding", ops::CheckEmbeddingConformance},
    {"gated_activation", ops::CheckGatedActivationConformance},
    {"gated_delta", ops::CheckGatedDeltaConformance},
    {"gated_recurrence", ops::CheckGatedRecurrenceConformance},
    {"head_linear", ops::CheckHeadLinearConformance},
    {"kv_write", ops::CheckKvWriteConformance},
    {"latent_attention", ops::CheckLatentAttentionConformance},
    {"latent_write", ops::CheckLatentWriteConformance},
    {"layer_norm", ops::CheckLayerNormConformance},
    {"linear", ops::CheckLinearConformance},
    {"mask_tokens", ops::CheckMaskTokensConformance},
    {"matrix_wkv", ops::CheckMatrixWkvConformance},
    {"merge_attention", ops::CheckMergeAttentionConformance},
    {"mix_streams", ops::CheckMixStreamsConformance},
    {"moe_combine", ops::CheckMoeCombineConformance},
    {"moe_route", ops::CheckMoeRouteConformance},
    {"paged_attention", ops::CheckPagedAttentionConformance},
    {"pool", ops::CheckPoolConformance},
    {"rms_norm", ops::CheckRmsNormConformance},
    {"rotary", ops::CheckRotaryConformance},
    {"scale", ops::CheckScaleConformance},
    {"scatter_rows", ops::CheckScatterRowsConformance},
    {"score_tokens", ops::CheckScoreTokensConformance},
    {"select_rows", ops::CheckSelectRowsConformance},
    {"select_tokens", ops::CheckSelectTokensConformance},
    {"selective_scan", ops::CheckSelectiveScanConformance},
    {"sparse_relu", ops::CheckSparseReluConformance},
    {"split", ops::CheckSplitConformance},
    {"state_space_scan", ops::CheckStateSpaceScanConformance},
    {"stream_weights", ops::CheckStreamWeightsConformance},
    {"take_tokens", ops::CheckTakeTokensConformance},
    {"unfold", ops::CheckUnfoldConformance},
    {"wkv", ops::CheckWkvConformance},
};

class SyclConformance : public ::testing::TestWithParam<OpBody> {};

TEST_P(SyclConformance, Holds) {
  GetParam().body(OpOnHost(GetParam().op).definition(), Device().capabilities());
}

INSTANTIATE_TEST_SUITE_P(Ops, SyclConformance, ::testing::ValuesIn(kBodies),
                         [](const auto& info) { return std::string(info.param.op); });

const ops::Kernel& ApplyAdapterKernel() {
  return (**ops::FindOp(SyclOps(), "apply_adapter")).kernels[0];
}

TEST(SyclConformance, AllReduceAddRmsNorm) {
  ops::CheckAllReduceAddRmsNormConformance(OpOnHost("all_reduce_add_rms_norm").definition(),
                                           Device().capabilities());
}

TEST(SyclConformance, ApplyAdapter) {
  ops::Kernel kernel = ApplyAdapterKernel();
  kernel.run = [](const ops::OpCall& call, ops::KernelContext& context) {
    conformance::RunWithAdapters(Device(), Tested(), ApplyAdapterKernel(), call, context);
  };
  kernel.workspace_bytes = nullptr;  // it is the device's
  ops::OpDefinition op = **ops::FindOp(ops::CpuOps(), "apply_adapter");
  const std::array kernels = {kernel, conformance::ReferenceKernel(op)};
  op.kernels = kernels;
  ops::CheckApplyAdapterConformance(op, Device().capabilities());
}

TEST(SyclConformance, GroupedLinear) {
  const OpOnHost op("grouped_linear"), linear("linear");
  ops::CheckGroupedLinearConformance(op.definition(), linear.definition(), Device().capabilities());
}

TEST(SyclConformance, LatentAttentionInvariance) {
  ops::CheckLatentAttentionInvariance(OpOnHost("latent_attention").definition(),
                                      Device().capabilities());
}

TEST(SyclConformance, LinearWithScales) {
  ops::CheckScaledConformance(OpOnHost("linear").definition(), Device().capabilities());
}

TEST(SyclConformance, LinearWithPackedIntegers) {
  ops::CheckPackedConformance(OpOnHost("linear").definition(), Device().capabilities());
}

TEST(SyclConformance, RotaryKvWrite) {
  const OpOnHost kv_write("kv_write"), rotary("rotary"), both("rotary_kv_write");
  const ops::OpDefinition definitions[] = {kv_write.definition(), rotary.definition(),
                                           both.definition()};
  ops::CheckRotaryKvWriteConformance(definitions, Device().capabilities());
}

}  // namespace
}  // namespace pagemill::sycl
