#include "cc/ops/attention/attention.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

#include "cc/ops/attention/attention_pages.h"
#include "cc/ops/kernel_support.h"
#include "cc/ops/operand_check.h"
#include "cc/ops/paged_attention/paged_attention.h"
#include "cc/ops/widened/widened.h"

namespace pagemill::ops {
namespace {

constexpr int64_t kMaxHeadDim = 512;

// The attributes that say what a row sees.
void CheckVisibility(const OpCall& call, OperandCheck& check) {
  check.IntegerAttribute("causal", /*fallback=*/1, 0, 1);
  check.IntegerAttribute("window", /*fallback=*/0, 0, INT32_MAX);
  check.IntegerAttribute("chunked", /*fallback=*/0, 0, 1);
  check.IntegerAttribute("prefix", /*fallback=*/0, 0, INT32_MAX);
  check.IntegerAttribute("grid_window", /*fallback=*/0, 0, INT32_MAX);
  const int32_t tokens = call.batch->num_tokens;
  check.Require(tokens == 0 || check.Dim('N') % tokens == 0,
                "the rows of q, " + std::to_string(check.Dim('N')) +
                    ", are not a multiple of the batch's " + std::to_string(tokens) + " tokens");
  if (!check.ok()) return;
  const Attributes& attributes = *call.attributes;
  const bool causal = attributes.GetInt("causal", 1) != 0;
  const bool windowed = attributes.GetInt("window", 0) > 0;
  check.Require(attributes.GetInt("chunked", 0) == 0 || windowed,
                "chunked attention needs a window");
  check.Require(attributes.GetInt("prefix", 0) == 0 || (causal && !windowed),
                "prefix needs causal=1, and no window");
  const bool in_grid = attributes.GetInt("grid_window", 0) > 0;
  check.Require(!in_grid || (!causal && !windowed), "grid_window needs causal=0, and no window");
  check.Require(!in_grid || RowsOfToken(call) == 1, "grid_window needs tokens of one row each");
}

void CheckGridBiases(const OpCall& call, OperandCheck& check) {
  const bool in_grid = call.attributes->GetInt("grid_columns", 0) > 0;
  check.Require(in_grid == HasAttentionInput(call, kAttentionColumnBiases),
                "column_biases need grid_columns, and grid_columns them");
  check.Require(!in_grid || HasAttentionInput(call, kAttentionBiases),
                "column_biases need biases of the grid's rows");
  check.Require(!in_grid || !HasAttentionInput(call, kAttentionKeyBiases),
                "key_biases are by the distance of positions: grid_columns excludes them");
}

Status CheckAttention(const OpCall& call) {
  const size_t inputs =
      std::clamp<size_t>(call.inputs.size(), kAttentionBiases, kAttentionSinks + 1);
  OperandCheck check("attention", call, inputs, /*outputs=*/1);
  check.ActInput(0, "q", "N,Q,D");
  check.ActInput(1, "k", "N,K,D");
  check.ActInput(2, "v", "N,K,D");
  check.ActOutput(0, "y", "N,Q,D");
  const auto biases = [&](size_t input, std::string_view name, std::string_view of_all,
                          std::string_view of_each) {
    if (!HasAttentionInput(call, input) || !check.ok()) return;
    CheckBiases(input, name, call.inputs[input].rank == 3 ? of_each : of_all, check);
  };
  biases(kAttentionBiases, "biases", "Q,W", "N,Q,W");
  biases(kAttentionColumnBiases, "column_biases", "Q,X", "N,Q,X");
  biases(kAttentionKeyBiases, "key_biases", "N,Q,Y", "N,Q,Y");
  if (HasAttentionInput(call, kAttentionSinks)) {
    check.Input(kAttentionSinks, "sinks", DType::kF32, "Q");
  }
  if (!check.ok()) return check.Result();
  check.Require(call.batch != nullptr, "the check needs the batch");
  check.Require(check.Dim('D') >= 1 && check.Dim('D') <= kMaxHeadDim,
                "head dimension must be 1 to 512, got " + std::to_string(check.Dim('D')));
  const int64_t kv_heads = check.Dim('K');
  check.Require(kv_heads > 0 && check.Dim('Q') % kv_heads == 0,
                std::to_string(check.Dim('Q')) + " query heads are not a multiple of " +
                    std::to_string(kv_heads) + " KV heads");
  CheckVisibility(call, check);
  check.IntegerAttribute("grid_columns", /*fallback=*/0, 0, INT32_MAX);
  if (!check.ok()) return check.Result();
  CheckGridBiases(call, check);
  const double scale = call.attributes->Get("scale", 0);
  check.Require(scale > 0 && std::isfinite(scale), "attribute scale must be a number above 0");
  CheckSoftCap(*call.attributes, check);
  return check.Result();
}

template <const PageKernels* kPages>
constexpr Kernel OverPages(int32_t priority, Precision activations = Precision::kF32) {
  return {.op = "attention",
          .name = kPages->attend,
          .priority = priority,
          .supports = [](const device::Capabilities& caps,
                         const OpCall& call) { return SupportsPages(*kPages, caps, call); },
          .run = [](const OpCall& call,
                    KernelContext& context) { RunOverPages(*kPages, call, context); },
          .workspace_bytes =
              [](const OpCall& call, int32_t num_threads) {
                return PagesWorkspaceBytes(*kPages, call, num_threads);
              },
          .activations = activations,
          .plan = &kPagesPlan};
}

constexpr F32Kernel kReference{.act_inputs = 0b111, .run = AttentionReference};
constexpr PageKernels kPortable{.write = "portable", .attend = "portable"};
#if defined(__x86_64__)
constexpr PageKernels kAvx2{.write = "avx2", .attend = "avx2"};
constexpr PageKernels kAvx512{.write = "avx512", .attend = "avx512"};
constexpr PageKernels kAvx512Bf16{
    .write = "avx512", .attend = "avx512_bf16", .pages = DType::kBF16};
constexpr PageKernels kAmxBf16{.write = "avx512", .attend = "amx_bf16", .pages = DType::kBF16};
#endif

constexpr Kernel kKernels[] = {
#if defined(__x86_64__)
    OverPages<&kAmxBf16>(50, Precision::kBf16),
    OverPages<&kAvx512Bf16>(40, Precision::kBf16),
    OverPages<&kAvx512>(30),
    OverPages<&kAvx2>(20),
#endif
    OverPages<&kPortable>(10),
    WidenedReference<&kReference>("attention"),
};

constexpr OpDefinition kDefinition{"attention", CheckAttention, kKernels};

}  // namespace

const OpDefinition& AttentionOp() { return kDefinition; }

DistanceBiases AttentionBiases(const OpCall& call) {
  DistanceBiases biases;
  if (HasAttentionInput(call, kAttentionBiases)) {
    biases.rows = BiasTableOf(call.inputs[kAttentionBiases]);
  }
  if (HasAttentionInput(call, kAttentionKeyBiases)) {
    biases.keys = BiasTableOf(call.inputs[kAttentionKeyBiases]);
  }
  if (HasAttentionInput(call, kAttentionColumnBiases)) {
    biases.columns = BiasTableOf(call.inputs[kAttentionColumnBiases]);
    biases.grid_columns = static_cast<int32_t>(call.attributes->GetInt("grid_columns", 0));
  }
  return biases;
}

const float* AttentionSinks(const OpCall& call) {
  if (!HasAttentionInput(call, kAttentionSinks)) return nullptr;
  return call.inputs[kAttentionSinks].Data<const float>();
}

}  // namespace pagemill::ops
