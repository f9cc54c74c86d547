// Conformance of a device plugin's kernels: the checks of every op, on the first device that the
// plugin finds.
//
//   plugin_conformance PLUGIN [flags of googletest]
//   plugin_conformance --gtest_list_tests
//
// Exits with 2 and a sentence if there is no such plugin or device, else with the result of tests.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "cc/base/status.h"
#include "cc/device/capabilities.h"
#include "cc/device/device.h"
#include "cc/ops/device_table.h"
#include "cc/ops/op.h"
#include "cc/program/device/device_plugin.h"
#include "cc/program/device/plugin_loader.h"
#include "cuda/ops/all_reduce_add_rms_norm/all_reduce_add_rms_norm.h"
#include "cuda/ops/kernels.h"
#include "cuda/ops/testing/gpu_conformance.h"

namespace pagemill::gpu {
namespace {

// Outlives all tests.
struct TestedPlugin {
  std::shared_ptr<program::LoadedPlugin> loaded;
  program::OpenedDevice opened;
};

TestedPlugin* tested = nullptr;

Status OpenPlugin(const char* path) {
  // Ranks of a collective are threads here, and share the device. Kernels that are loaded when they
  // are first launched wait for those that run, which may wait for them.
  setenv("CUDA_MODULE_LOADING", "EAGER", /*overwrite=*/0);
  static TestedPlugin plugin;
  PAGEMILL_ASSIGN_OR_RETURN(plugin.loaded, program::LoadPlugin(path, PAGEMILL_VERSION));
  PAGEMILL_ASSIGN_OR_RETURN(const std::vector<program::FoundDevice> found,
                            plugin.loaded->plugin().Find());
  PAGEMILL_ASSIGN_OR_RETURN(plugin.opened, plugin.loaded->plugin().Open(0));
  std::printf("on %s, %s\n", found[0].name.c_str(), found[0].architecture.c_str());
  tested = &plugin;
  return OkStatus();
}

// Empty if the plugin has none.
std::span<const ops::Kernel> KernelsOf(std::string_view op) {
  for (const ops::OpKernels& row : tested->loaded->plugin().kernels()) {
    if (row.op == op) return row.kernels;
  }
  return {};
}

int Main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (::testing::GTEST_FLAG(list_tests)) return RUN_ALL_TESTS();
  if (argc != 2) {
    std::fprintf(stderr, "usage: plugin_conformance PLUGIN [flags of googletest]\n");
    return 2;
  }
  const Status status = OpenPlugin(argv[1]);
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    return 2;
  }
  return RUN_ALL_TESTS();
}

}  // namespace

device::Device& TheGpu() { return *tested->opened.device; }
device::Capabilities GpuCapabilities() { return tested->opened.capabilities; }
void GpuConformance::SetUp() {}

INSTANTIATE_TEST_SUITE_P(Plugin, GpuConformance, ::testing::Values(0));

// Those of the plugin, by the names that checks use.
#define PAGEMILL_KERNELS_OF(function, op) \
  std::span<const ops::Kernel> function() { return KernelsOf(op); }

PAGEMILL_KERNELS_OF(ActivationKernels, "activation")
PAGEMILL_KERNELS_OF(AddKernels, "add")
PAGEMILL_KERNELS_OF(AddRmsNormKernels, "add_rms_norm")
PAGEMILL_KERNELS_OF(AdjustLogitsKernels, "adjust_logits")
PAGEMILL_KERNELS_OF(AllGatherKernels, "all_gather")
PAGEMILL_KERNELS_OF(AllReduceKernels, "all_reduce")
PAGEMILL_KERNELS_OF(AllReduceAddRmsNormKernels, "all_reduce_add_rms_norm")
PAGEMILL_KERNELS_OF(ApplyAdapterKernels, "apply_adapter")
PAGEMILL_KERNELS_OF(ArgmaxKernels, "argmax")
PAGEMILL_KERNELS_OF(AttentionKernels, "attention")
PAGEMILL_KERNELS_OF(CausalConvKernels, "causal_conv")
PAGEMILL_KERNELS_OF(CompressTokensKernels, "compress_tokens")
PAGEMILL_KERNELS_OF(ConcatKernels, "concat")
PAGEMILL_KERNELS_OF(CountTokensKernels, "count_tokens")
PAGEMILL_KERNELS_OF(DepthwiseConvKernels, "depthwise_conv")
PAGEMILL_KERNELS_OF(DrawTokensKernels, "draw_tokens")
PAGEMILL_KERNELS_OF(EmbeddingKernels, "embedding")
PAGEMILL_KERNELS_OF(GatedActivationKernels, "gated_activation")
PAGEMILL_KERNELS_OF(GatedDeltaKernels, "gated_delta")
PAGEMILL_KERNELS_OF(GatedRecurrenceKernels, "gated_recurrence")
PAGEMILL_KERNELS_OF(GroupedLinearKernels, "grouped_linear")
PAGEMILL_KERNELS_OF(HeadLinearKernels, "head_linear")
PAGEMILL_KERNELS_OF(KvWriteKernels, "kv_write")
PAGEMILL_KERNELS_OF(LatentAttentionKernels, "latent_attention")
PAGEMILL_KERNELS_OF(LatentWriteKernels, "latent_write")
PAGEMILL_KERNELS_OF(LayerNormKernels, "layer_norm")
PAGEMILL_KERNELS_OF(LinearKernels, "linear")
PAGEMILL_KERNELS_OF(MaskTokensKernels, "mask_tokens")
PAGEMILL_KERNELS_OF(MatrixWkvKernels, "matrix_wkv")
PAGEMILL_KERNELS_OF(MergeAttentionKernels, "merge_attention")
PAGEMILL_KERNELS_OF(MixStreamsKernels, "mix_streams")
PAGEMILL_KERNELS_OF(MoeCombineKernels, "moe_combine")
PAGEMILL_KERNELS_OF(MoeRouteKernels, "moe_route")
PAGEMILL_KERNELS_OF(PagedAttentionKernels, "paged_attention")
PAGEMILL_KERNELS_OF(PoolKernels, "pool")
PAGEMILL_KERNELS_OF(RmsNormKernels, "rms_norm")
PAGEMILL_KERNELS_OF(RotaryKernels, "rotary")
PAGEMILL_KERNELS_OF(RotaryKvWriteKernels, "rotary_kv_write")
PAGEMILL_KERNELS_OF(ScaleKernels, "scale")
PAGEMILL_KERNELS_OF(ScatterRowsKernels, "scatter_rows")
PAGEMILL_KERNELS_OF(ScoreTokensKernels, "score_tokens")
PAGEMILL_KERNELS_OF(SelectRowsKernels, "select_rows")
PAGEMILL_KERNELS_OF(SelectTokensKernels, "select_tokens")
PAGEMILL_KERNELS_OF(SelectiveScanKernels, "selective_scan")
PAGEMILL_KERNELS_OF(SparseReluKernels, "sparse_relu")
PAGEMILL_KERNELS_OF(SplitKernels, "split")
PAGEMILL_KERNELS_OF(StateSpaceScanKernels, "state_space_scan")
PAGEMILL_KERNELS_OF(StreamWeightsKernels, "stream_weights")
PAGEMILL_KERNELS_OF(TakeTokensKernels, "take_tokens")
PAGEMILL_KERNELS_OF(UnfoldKernels, "unfold")
PAGEMILL_KERNELS_OF(WkvKernels, "wkv")

#undef PAGEMILL_KERNELS_OF

}  // namespace pagemill::gpu

int main(int argc, char** argv) { return pagemill::gpu::Main(argc, argv); }
