// The table of CPU ops: one line for each op folder, sorted by name.
#include <array>

#include "cc/ops/activation/activation.h"
#include "cc/ops/add/add.h"
#include "cc/ops/add_rms_norm/add_rms_norm.h"
#include "cc/ops/adjust_logits/adjust_logits.h"
#include "cc/ops/all_gather/all_gather.h"
#include "cc/ops/all_reduce/all_reduce.h"
#include "cc/ops/all_reduce_add_rms_norm/all_reduce_add_rms_norm.h"
#include "cc/ops/apply_adapter/apply_adapter.h"
#include "cc/ops/argmax/argmax.h"
#include "cc/ops/attention/attention.h"
#include "cc/ops/causal_conv/causal_conv.h"
#include "cc/ops/compress_tokens/compress_tokens.h"
#include "cc/ops/concat/concat.h"
#include "cc/ops/count_tokens/count_tokens.h"
#include "cc/ops/depthwise_conv/depthwise_conv.h"
#include "cc/ops/draw_tokens/draw_tokens.h"
#include "cc/ops/embedding/embedding.h"
#include "cc/ops/gated_activation/gated_activation.h"
#include "cc/ops/gated_delta/gated_delta.h"
#include "cc/ops/gated_recurrence/gated_recurrence.h"
#include "cc/ops/grouped_linear/grouped_linear.h"
#include "cc/ops/head_linear/head_linear.h"
#include "cc/ops/kv_write/kv_write.h"
#include "cc/ops/latent_attention/latent_attention.h"
#include "cc/ops/latent_write/latent_write.h"
#include "cc/ops/layer_norm/layer_norm.h"
#include "cc/ops/linear/linear.h"
#include "cc/ops/mask_tokens/mask_tokens.h"
#include "cc/ops/matrix_wkv/matrix_wkv.h"
#include "cc/ops/merge_attention/merge_attention.h"
#include "cc/ops/mix_streams/mix_streams.h"
#include "cc/ops/moe_combine/moe_combine.h"
#include "cc/ops/moe_route/moe_route.h"
#include "cc/ops/op.h"
#include "cc/ops/paged_attention/paged_attention.h"
#include "cc/ops/pool/pool.h"
#include "cc/ops/rms_norm/rms_norm.h"
#include "cc/ops/rotary/rotary.h"
#include "cc/ops/rotary_kv_write/rotary_kv_write.h"
#include "cc/ops/scale/scale.h"
#include "cc/ops/scatter_rows/scatter_rows.h"
#include "cc/ops/score_tokens/score_tokens.h"
#include "cc/ops/select_rows/select_rows.h"
#include "cc/ops/select_tokens/select_tokens.h"
#include "cc/ops/selective_scan/selective_scan.h"
#include "cc/ops/sparse_relu/sparse_relu.h"
#include "cc/ops/split/split.h"
#include "cc/ops/state_space_scan/state_space_scan.h"
#include "cc/ops/stream_weights/stream_weights.h"
#include "cc/ops/take_tokens/take_tokens.h"
#include "cc/ops/unfold/unfold.h"
#include "cc/ops/wkv/wkv.h"

namespace pagemill::ops {

std::span<const OpDefinition> CpuOps() {
  // clang-format off
  static const std::array kOps = {
      ActivationOp(),
      AddOp(),
      AddRmsNormOp(),
      AdjustLogitsOp(),
      AllGatherOp(),
      AllReduceOp(),
      AllReduceAddRmsNormOp(),
      ApplyAdapterOp(),
      ArgmaxOp(),
      AttentionOp(),
      CausalConvOp(),
      CompressTokensOp(),
      ConcatOp(),
      CountTokensOp(),
      DepthwiseConvOp(),
      DrawTokensOp(),
      EmbeddingOp(),
      GatedActivationOp(),
      GatedDeltaOp(),
      GatedRecurrenceOp(),
      GroupedLinearOp(),
      HeadLinearOp(),
      KvWriteOp(),
      LatentAttentionOp(),
      LatentWriteOp(),
      LayerNormOp(),
      LinearOp(),
      MaskTokensOp(),
      MatrixWkvOp(),
      MergeAttentionOp(),
      MixStreamsOp(),
      MoeCombineOp(),
      MoeRouteOp(),
      PagedAttentionOp(),
      PoolOp(),
      RmsNormOp(),
      RotaryOp(),
      RotaryKvWriteOp(),
      ScaleOp(),
      ScatterRowsOp(),
      ScoreTokensOp(),
      SelectRowsOp(),
      SelectTokensOp(),
      SelectiveScanOp(),
      SparseReluOp(),
      SplitOp(),
      StateSpaceScanOp(),
      StreamWeightsOp(),
      TakeTokensOp(),
      UnfoldOp(),
      WkvOp(),
  };
  // clang-format on
  return kOps;
}

}  // namespace pagemill::ops
