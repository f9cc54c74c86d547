#include "sycl/ops_table.h"

#include "sycl/ops/kernels.h"

namespace pagemill::sycl {
namespace {

const ops::OpKernels kRows[] = {
    {"activation", {&kActivation, 1}},
    {"add", {&kAdd, 1}},
    {"add_rms_norm", {&kAddRmsNorm, 1}},
    {"argmax", {&kArgmax, 1}},
    {"attention", {&kAttention, 1}},
    {"causal_conv", {&kCausalConv, 1}},
    {"concat", {&kConcat, 1}},
    {"draw_tokens", {&kDrawTokens, 1}},
    {"embedding", {&kEmbedding, 1}},
    {"gated_activation", {&kGatedActivation, 1}},
    {"grouped_linear", {&kGroupedLinear, 1}},
    {"head_linear", {&kHeadLinear, 1}},
    {"kv_write", {&kKvWrite, 1}},
    {"layer_norm", {&kLayerNorm, 1}},
    {"linear", {&kLinear, 1}},
    {"mask_tokens", {&kMaskTokens, 1}},
    {"moe_combine", {&kMoeCombine, 1}},
    {"moe_route", {&kMoeRoute, 1}},
    {"paged_attention", {&kPagedAttention, 1}},
    {"pool", {&kPool, 1}},
    {"rms_norm", {&kRmsNorm, 1}},
    {"rotary", {&kRotary, 1}},
    {"rotary_kv_write", {&kRotaryKvWrite, 1}},
    {"scale", {&kScale, 1}},
    {"scatter_rows", {&kScatterRows, 1}},
    {"select_rows", {&kSelectRows, 1}},
    {"sparse_relu", {&kSparseRelu, 1}},
    {"split", {&kSplit, 1}},
    {"take_tokens", {&kTakeTokens, 1}},
};

}  // namespace

std::span<const ops::OpKernels> SyclKernels() { return kRows; }

}  // namespace pagemill::sycl
