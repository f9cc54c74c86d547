// The table of GPU ops: one line for each op folder, sorted by name.
#include "cuda/ops_table.h"

#include "cc/ops/device_table.h"
#include "cuda/ops/activation/activation.h"
#include "cuda/ops/add/add.h"
#include "cuda/ops/add_rms_norm/add_rms_norm.h"
#include "cuda/ops/apply_adapter/apply_adapter.h"
#include "cuda/ops/argmax/argmax.h"
#include "cuda/ops/attention/attention.h"
#include "cuda/ops/causal_conv/causal_conv.h"
#include "cuda/ops/concat/concat.h"
#include "cuda/ops/draw_tokens/draw_tokens.h"
#include "cuda/ops/embedding/embedding.h"
#include "cuda/ops/gated_activation/gated_activation.h"
#include "cuda/ops/gated_delta/gated_delta.h"
#include "cuda/ops/gated_recurrence/gated_recurrence.h"
#include "cuda/ops/grouped_linear/grouped_linear.h"
#include "cuda/ops/head_linear/head_linear.h"
#include "cuda/ops/kv_write/kv_write.h"
#include "cuda/ops/latent_attention/latent_attention.h"
#include "cuda/ops/latent_write/latent_write.h"
#include "cuda/ops/layer_norm/layer_norm.h"
#include "cuda/ops/linear/linear.h"
#include "cuda/ops/mask_tokens/mask_tokens.h"
#include "cuda/ops/moe_combine/moe_combine.h"
#include "cuda/ops/moe_route/moe_route.h"
#include "cuda/ops/paged_attention/paged_attention.h"
#include "cuda/ops/pool/pool.h"
#include "cuda/ops/rms_norm/rms_norm.h"
#include "cuda/ops/rotary/rotary.h"
#include "cuda/ops/rotary_kv_write/rotary_kv_write.h"
#include "cuda/ops/scale/scale.h"
#include "cuda/ops/scatter_rows/scatter_rows.h"
#include "cuda/ops/select_rows/select_rows.h"
#include "cuda/ops/select_tokens/select_tokens.h"
#include "cuda/ops/selective_scan/selective_scan.h"
#include "cuda/ops/sparse_relu/sparse_relu.h"
#include "cuda/ops/split/split.h"
#include "cuda/ops/state_space_scan/state_space_scan.h"
#include "cuda/ops/take_tokens/take_tokens.h"

namespace pagemill::gpu {

std::span<const ops::OpDefinition> GpuOps() {
  static const ops::OpKernels kRows[] = {
      {"activation", ActivationKernels()},
      {"add", AddKernels()},
      {"add_rms_norm", AddRmsNormKernels()},
      {"apply_adapter", ApplyAdapterKernels()},
      {"argmax", ArgmaxKernels()},
      {"attention", AttentionKernels()},
      {"causal_conv", CausalConvKernels()},
      {"concat", ConcatKernels()},
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
      {"moe_combine", MoeCombineKernels()},
      {"moe_route", MoeRouteKernels()},
      {"paged_attention", PagedAttentionKernels()},
      {"pool", PoolKernels()},
      {"rms_norm", RmsNormKernels()},
      {"rotary", RotaryKernels()},
      {"rotary_kv_write", RotaryKvWriteKernels()},
      {"scale", ScaleKernels()},
      {"scatter_rows", ScatterRowsKernels()},
      {"select_rows", SelectRowsKernels()},
      {"select_tokens", SelectTokensKernels()},
      {"selective_scan", SelectiveScanKernels()},
      {"sparse_relu", SparseReluKernels()},
      {"split", SplitKernels()},
      {"state_space_scan", StateSpaceScanKernels()},
      {"take_tokens", TakeTokensKernels()},
  };
  static const ops::DeviceTable table(kRows);
  return table.definitions();
}

}  // namespace pagemill::gpu
