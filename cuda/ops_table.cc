// The table of GPU ops: one line for each op folder, sorted by name.
#include "cuda/ops_table.h"

#include "cuda/ops/all_reduce_add_rms_norm/all_reduce_add_rms_norm.h"
#include "cuda/ops/kernels.h"

namespace pagemill::gpu {

std::span<const ops::OpKernels> GpuKernels() {
  static const ops::OpKernels kRows[] = {
      {"activation", ActivationKernels()},
      {"add", AddKernels()},
      {"add_rms_norm", AddRmsNormKernels()},
      {"adjust_logits", AdjustLogitsKernels()},
      {"all_gather", AllGatherKernels()},
      {"all_reduce", AllReduceKernels()},
      {"all_reduce_add_rms_norm", AllReduceAddRmsNormKernels()},
      {"apply_adapter", ApplyAdapterKernels()},
      {"argmax", ArgmaxKernels()},
      {"attention", AttentionKernels()},
      {"causal_conv", CausalConvKernels()},
      {"compress_tokens", CompressTokensKernels()},
      {"concat", ConcatKernels()},
      {"count_tokens", CountTokensKernels()},
      {"depthwise_conv", DepthwiseConvKernels()},
      {"draw_tokens", DrawTokensKernels()},
      {"embedding", EmbeddingKernels()},
      {"gated_activation", GatedActivationKernels()},
      {"gated_delta", GatedDeltaKernels()},
      {"gated_recurrence", GatedRecurrenceKernels()},
      {"grouped_linear", GroupedLinearKernels()},
      {"head_linear", HeadLinearKernels()},
      {"kv_write", KvWriteKernels()},
      {"latent_attention", LatentAttentionKernels()},
      {"latent_write", LatentWriteKernels()},
      {"layer_norm", LayerNormKernels()},
      {"linear", LinearKernels()},
      {"mask_tokens", MaskTokensKernels()},
      {"matrix_wkv", MatrixWkvKernels()},
      {"merge_attention", MergeAttentionKernels()},
      {"mix_streams", MixStreamsKernels()},
      {"moe_combine", MoeCombineKernels()},
      {"moe_route", MoeRouteKernels()},
      {"paged_attention", PagedAttentionKernels()},
      {"pool", PoolKernels()},
      {"rms_norm", RmsNormKernels()},
      {"rotary", RotaryKernels()},
      {"rotary_kv_write", RotaryKvWriteKernels()},
      {"scale", ScaleKernels()},
      {"scatter_rows", ScatterRowsKernels()},
      {"score_tokens", ScoreTokensKernels()},
      {"select_rows", SelectRowsKernels()},
      {"select_tokens", SelectTokensKernels()},
      {"selective_scan", SelectiveScanKernels()},
      {"sparse_relu", SparseReluKernels()},
      {"split", SplitKernels()},
      {"state_space_scan", StateSpaceScanKernels()},
      {"stream_weights", StreamWeightsKernels()},
      {"take_tokens", TakeTokensKernels()},
      {"unfold", UnfoldKernels()},
      {"wkv", WkvKernels()},
  };
  return kRows;
}

}  // namespace pagemill::gpu
