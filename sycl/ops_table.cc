#include "sycl/ops_table.h"

#include "sycl/ops/kernels.h"

namespace pagemill::sycl {
namespace {

const ops::OpKernels kRows[] = {
    {"activation", {&kActivation, 1}},
    {"add", {&kAdd, 1}},
    {"add_rms_norm", {&kAddRmsNorm, 1}},
    {"adjust_logits", {&kAdjustLogits, 1}},
    {"all_gather", {&kAllGather, 1}},
    {"all_reduce", {&kAllReduce, 1}},
    {"all_reduce_add_rms_norm", {&kAllReduceAddRmsNorm, 1}},
    {"apply_adapter", {&kApplyAdapter, 1}},
    {"argmax", {&kArgmax, 1}},
    {"attention", {&kAttention, 1}},
    {"causal_conv", {&kCausalConv, 1}},
    {"compress_tokens", {&kCompressTokens, 1}},
    {"concat", {&kConcat, 1}},
    {"count_tokens", {&kCountTokens, 1}},
    {"depthwise_conv", {&kDepthwiseConv, 1}},
    {"draw_tokens", {&kDrawTokens, 1}},
    {"embedding", {&kEmbedding, 1}},
    {"gated_activation", {&kGatedActivation, 1}},
    {"gated_delta", {&kGatedDelta, 1}},
    {"gated_recurrence", {&kGatedRecurrence, 1}},
    {"grouped_linear", {&kGroupedLinear, 1}},
    {"head_linear", {&kHeadLinear, 1}},
    {"kv_write", {&kKvWrite, 1}},
    {"latent_attention", {&kLatentAttention, 1}},
    {"latent_write", {&kLatentWrite, 1}},
    {"layer_norm", {&kLayerNorm, 1}},
    {"linear", LinearKernels()},
    {"mask_tokens", {&kMaskTokens, 1}},
    {"matrix_wkv", {&kMatrixWkv, 1}},
    {"merge_attention", {&kMergeAttention, 1}},
    {"mix_streams", {&kMixStreams, 1}},
    {"moe_combine", {&kMoeCombine, 1}},
    {"moe_route", {&kMoeRoute, 1}},
    {"paged_attention", {&kPagedAttention, 1}},
    {"pool", {&kPool, 1}},
    {"rms_norm", {&kRmsNorm, 1}},
    {"rotary", {&kRotary, 1}},
    {"rotary_kv_write", {&kRotaryKvWrite, 1}},
    {"scale", {&kScale, 1}},
    {"scatter_rows", {&kScatterRows, 1}},
    {"score_tokens", {&kScoreTokens, 1}},
    {"select_rows", {&kSelectRows, 1}},
    {"select_tokens", {&kSelectTokens, 1}},
    {"selective_scan", {&kSelectiveScan, 1}},
    {"sparse_relu", {&kSparseRelu, 1}},
    {"split", {&kSplit, 1}},
    {"state_space_scan", {&kStateSpaceScan, 1}},
    {"stream_weights", {&kStreamWeights, 1}},
    {"take_tokens", {&kTakeTokens, 1}},
    {"unfold", {&kUnfold, 1}},
    {"wkv", {&kWkv, 1}},
};

}  // namespace

std::span<const ops::OpKernels> SyclKernels() { return kRows; }

}  // namespace pagemill::sycl
