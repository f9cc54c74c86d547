#include "cc/ops/paged_attention/paged_attention.h"

#include <algorithm>
#include <cmath>

#include "cc/ops/kernel_support.h"
#include "cc/ops/kv_page.h"
#include "cc/ops/operand_check.h"
#include "cc/ops/paged_attention/attention_driver.h"
#include "cc/ops/paged_attention/attention_kernel.h"
#include "cc/ops/widened/widened.h"

namespace pagemill::ops {
namespace {

constexpr int64_t kMaxHeadDim = 512;

// Optional inputs.
constexpr size_t kSinks = 2, kSlopes = 3, kBiases = 4, kKeyRanges = 5, kColumnBiases = 6,
                 kKeyBiases = 7;

bool IsThere(const OpCall& call, size_t input) {
  return call.inputs.size() > input && call.inputs[input].rank > 0;
}

void CheckAttributes(const OpCall& call, OperandCheck& check) {
  check.IntegerAttribute("window", /*fallback=*/0, 0, INT32_MAX);
  check.IntegerAttribute("causal", /*fallback=*/1, 0, 1);
  check.IntegerAttribute("chunked", /*fallback=*/0, 0, 1);
  check.IntegerAttribute("grows_from", /*fallback=*/0, 0, INT32_MAX);
  check.IntegerAttribute("encoder_ends", /*fallback=*/0, 0, 2);
  check.IntegerAttribute("item_ends", /*fallback=*/0, 0, 1);
  if (!check.ok()) return;
  const Attributes& attributes = *call.attributes;
  check.Require(attributes.GetInt("grows_from", 0) != 1,
                "attribute grows_from must be 0 (nothing grows) or 2 or more");
  check.Require(attributes.GetInt("chunked", 0) == 0 || (attributes.GetInt("window", 0) > 0 &&
                                                         attributes.GetInt("causal", 1) != 0),
                "chunked attention needs a window and causal=1");
  const bool causal = attributes.GetInt("causal", 1) != 0;
  const bool divided = attributes.GetInt("encoder_ends", 0) != 0;
  check.Require(!divided || (attributes.GetInt("window", 0) == 0 && causal),
                "encoder_ends needs causal=1, and no window");
  check.Require(attributes.GetInt("item_ends", 0) == 0 ||
                    (causal && !divided && attributes.GetInt("chunked", 0) == 0),
                "item_ends needs causal=1, and excludes encoder_ends and chunked");
  const double scale = attributes.Get("scale", 0);
  check.Require(scale > 0 && std::isfinite(scale), "attribute scale must be a number above 0");
  CheckSoftCap(attributes, check);
  CheckKvScales(call, check);
  CheckKeyLayout(check);
}

Status CheckPagedAttention(const OpCall& call) {
  // The optional operands may be left out at the end.
  const size_t inputs = std::clamp<size_t>(call.inputs.size(), 2, 5);
  OperandCheck check("paged_attention", call, inputs, /*outputs=*/1);
  check.ActInput(0, "q", "T,Q,D");
  check.ActOutput(0, "y", "T,Q,D");
  if (!check.ok()) return check.Result();
  const TensorView& cache = call.inputs[1];
  if (IsThere(call, kSinks)) check.Input(kSinks, "sinks", DType::kF32, "Q");
  if (IsThere(call, kSlopes)) check.Input(kSlopes, "slopes", DType::kF32, "Q");
  if (IsThere(call, kBiases)) CheckBiases(kBiases, "biases", "Q,W", check);
  check.Require(IsKvDType(cache.dtype), "cache must be " + std::string(kKvDTypeNames) + ", got " +
                                            std::string(Info(cache.dtype).name));
  check.Input(1, "cache", cache.dtype, "B,E");
  check.Require(call.batch != nullptr && call.batch->block_size > 0,
                "the check needs the batch's block_size");
  check.Require(check.Dim('D') >= 1 && check.Dim('D') <= kMaxHeadDim,
                "head dimension must be 1 to 512, got " + std::to_string(check.Dim('D')));
  const bool has_fours = call.batch != nullptr && call.batch->block_size % 4 == 0;
  check.Require(
      !HasInt4Rows(cache.dtype) || (has_fours && !KeysInRows(call)),
      "a cache with int4 rows needs blocks of a multiple of 4 tokens, and keys in columns");
  if (!check.ok()) return check.Result();
  const int64_t token_elements = KvTokenElements(cache.dtype, check.Dim('D'));
  const int64_t head_elements = token_elements * call.batch->block_size;
  const int64_t kv_heads = check.Dim('E') / head_elements;
  check.Require(
      kv_heads > 0 && check.Dim('E') % head_elements == 0 && check.Dim('Q') % kv_heads == 0,
      "a block of the cache must hold kv_heads * " + std::to_string(token_elements) +
          " elements * " + std::to_string(call.batch->block_size) +
          " tokens with kv_heads a divisor of " + std::to_string(check.Dim('Q')) +
          " query heads, got " + std::to_string(check.Dim('E')) + " elements");
  CheckAttributes(call, check);
  return check.Result();
}

// True for caches that avx512_bf16 and amx_bf16 multiply as bf16. Files with these flags are
// compiled for VNNI, too.
[[maybe_unused]] bool HasBf16Pairs(const device::Capabilities& caps, const OpCall& call) {
  const DType cache = call.inputs[1].dtype;
  return caps.cpu.avx512_bf16 && caps.cpu.avx512_vnni &&
         (cache == DType::kBF16 || (cache == DType::kF8E4M3 && caps.cpu.avx512_vbmi));
}

// True if the f32 kernels support the call.
bool Fits(const OpCall& call) {
  return HasF32Activations(call) && !KeysInRows(call) &&
         call.batch->block_size % kAttentionKeyGroup == 0;
}

template <const AttentionKernels* kKernels>
void Run(const OpCall& call, KernelContext& context) {
  RunAttention(*kKernels, call, context);
}

constexpr F32Kernel kReference{.act_inputs = 0b1, .run = PagedAttentionReference};

constexpr Kernel Row(std::string_view name, int32_t priority,
                     void (*run)(const OpCall&, KernelContext&), Precision activations,
                     bool (*supports)(const device::Capabilities&, const OpCall&)) {
  return {.op = "paged_attention",
          .name = name,
          .priority = priority,
          .supports = supports,
          .run = run,
          .workspace_bytes = AttentionWorkspaceBytes,
          .activations = activations,
          .plan = &kAttentionPlan};
}

constexpr Kernel kKernels[] = {
#if defined(__x86_64__)
    Row("amx_bf16", 50, Run<&kAttentionAmx>, Precision::kBf16,
        [](const device::Capabilities& caps, const OpCall& call) {
          return caps.cpu.amx_bf16 && HasBf16Pairs(caps, call) && Fits(call);
        }),
    Row("avx512_bf16", 40, Run<&kAttentionAvx512Bf16>, Precision::kBf16,
        [](const device::Capabilities& caps, const OpCall& call) {
          return HasBf16Pairs(caps, call) && Fits(call);
        }),
    Row("amx_int8", 50, Run<&kAttentionAmx>, Precision::kBf16,
        [](const device::Capabilities& caps, const OpCall& call) {
          return caps.cpu.amx_int8 && caps.cpu.avx512_vnni && caps.cpu.avx512_bf16 && Fits(call) &&
                 HasKvScales(call.inputs[1].dtype);
        }),
    Row("avx512_vnni", 40, Run<&kAttentionAvx512Vnni>, Precision::kBf16,
        [](const device::Capabilities& caps, const OpCall& call) {
          return caps.cpu.avx512_vnni && Fits(call) && HasKvScales(call.inputs[1].dtype);
        }),
    Row("avx512", 30, Run<&kAttentionAvx512>, Precision::kF32,
        [](const device::Capabilities& caps, const OpCall& call) {
          return caps.cpu.avx512 && Fits(call);
        }),
    Row("avx2", 20, Run<&kAttentionAvx2>, Precision::kF32,
        [](const device::Capabilities& caps, const OpCall& call) {
          return caps.cpu.avx2 && Fits(call);
        }),
#endif
    Row("portable", 10, Run<&kAttentionPortable>, Precision::kF32,
        [](const device::Capabilities&, const OpCall& call) { return Fits(call); }),
    WidenedReference<&kReference>("paged_attention"),
};

constexpr OpDefinition kDefinition{"paged_attention", CheckPagedAttention, kKernels};

}  // namespace

PagedAttentionArgs ToPagedAttentionArgs(const OpCall& call) {
  PagedAttentionArgs args;
  args.q = call.inputs[0];
  args.cache = call.inputs[1];
  args.y = call.outputs[0];
  if (IsThere(call, kSinks)) args.sinks = call.inputs[kSinks].Data<const float>();
  if (IsThere(call, kSlopes)) args.slopes = call.inputs[kSlopes].Data<const float>();
  if (IsThere(call, kBiases)) args.biases.rows = BiasTableOf(call.inputs[kBiases]);
  if (IsThere(call, kColumnBiases)) {
    args.biases.columns = BiasTableOf(call.inputs[kColumnBiases]);
    args.biases.grid_columns = static_cast<int32_t>(call.attributes->GetInt("grid_columns", 0));
  }
  if (IsThere(call, kKeyBiases)) args.biases.keys = BiasTableOf(call.inputs[kKeyBiases]);
  if (IsThere(call, kKeyRanges)) args.key_ranges = call.inputs[kKeyRanges].Data<const int32_t>();
  args.batch = call.batch;
  const int64_t token_elements = KvTokenElements(args.cache.dtype, args.q.shape[2]);
  args.kv_heads =
      static_cast<int32_t>(args.cache.shape[1] / (token_elements * call.batch->block_size));
  args.scale = static_cast<float>(call.attributes->Get("scale", 1));
  args.window = static_cast<int32_t>(call.attributes->GetInt("window", 0));
  args.chunked = call.attributes->GetInt("chunked", 0) != 0;
  args.causal = call.attributes->GetInt("causal", 1) != 0;
  args.encoder_keys = call.attributes->GetInt("encoder_ends", 0) == 1;
  args.decoder_keys = call.attributes->GetInt("encoder_ends", 0) == 2;
  args.item_ends = call.attributes->GetInt("item_ends", 0) != 0;
  args.soft_cap = static_cast<float>(call.attributes->Get("soft_cap", 0));
  args.grows_from = static_cast<int32_t>(call.attributes->GetInt("grows_from", 0));
  args.kv_scales = KvScalesOf(*call.attributes, args.cache.dtype);
  args.keys_in_rows = KeysInRows(call);
  return args;
}

void CheckSoftCap(const Attributes& attributes, OperandCheck& check) {
  const double soft_cap = attributes.Get("soft_cap", 0);
  check.Require(soft_cap == 0 || (soft_cap >= kMinSoftCap && soft_cap <= kMaxSoftCap),
                "attribute soft_cap must be 0 (none) or 1e-5 to 1e5");
}

void CheckBiases(size_t input, std::string_view name, std::string_view pattern,
                 OperandCheck& check) {
  check.Input(input, name, DType::kF32, pattern);
  if (!check.ok()) return;
  const int64_t width = check.Dim(pattern.back());
  check.Require(width % 2 == 1 && width <= kMaxBiases,
                std::string(name) + " must be of 2 * reach + 1 distances, at most " +
                    std::to_string(kMaxBiases) + ", got " + std::to_string(width));
}

BiasTable BiasTableOf(const TensorView& view) {
  const bool by_row = view.rank == 3;
  return {.data = view.Data<const float>(),
          .reach = static_cast<int32_t>(view.shape[by_row ? 2 : 1] / 2),
          .row_stride = by_row ? view.row_stride_bytes / static_cast<int64_t>(sizeof(float)) : 0};
}

double BiasOf(const DistanceBiases& biases, int64_t query, int64_t head, int64_t position,
              int64_t key) {
  const auto at = [&](const BiasTable& table, int64_t row, int64_t distance) -> double {
    if (table.data == nullptr) return 0;
    const int64_t reach = table.reach;
    return table.Of(row, head)[reach + std::clamp(distance, -reach, reach)];
  };
  const int64_t distance = key - position, width = biases.grid_columns;
  const double of_key = at(biases.keys, query + distance, distance);
  if (width == 0) return at(biases.rows, query, distance) + of_key;
  return at(biases.rows, query, key / width - position / width) +
         at(biases.columns, query, key % width - position % width) + of_key;
}

const OpDefinition& PagedAttentionOp() { return kDefinition; }

}  // namespace pagemill::ops
