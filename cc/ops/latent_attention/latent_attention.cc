#include "cc/ops/latent_attention/latent_attention.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "cc/ops/kernel_support.h"
#include "cc/ops/latent_attention/latent_rows.h"
#include "cc/ops/latent_write/latent_cache.h"
#include "cc/ops/operand_check.h"
#include "cc/ops/widened/widened.h"

namespace pagemill::ops {
namespace {

constexpr int64_t kFloatBytes = sizeof(float);

constexpr size_t kRope = 1, kCache = 2, kChosen = 3;  // inputs; a cache is always there

bool Chooses(const OpCall& call) { return HasInput(call, kChosen); }
bool WantsLse(const OpCall& call) { return call.outputs.size() > 1; }

Status CheckLatentAttention(const OpCall& call) {
  const bool chooses = Chooses(call);
  const size_t inputs = std::clamp<size_t>(call.inputs.size(), 3, 4);
  const size_t outputs = std::clamp<size_t>(call.outputs.size(), 1, 2);
  OperandCheck check("latent_attention", call, inputs, outputs);
  check.ActInput(0, "q", "T,H,R");
  if (HasInput(call, kRope)) check.ActInput(kRope, "rope", "T,H,P");
  check.ActOutput(0, "y", "T,H,R");
  if (WantsLse(call)) check.Output(1, "lse", DType::kF32, "T,H");
  if (chooses) check.Input(kChosen, "chosen", DType::kI32, "T,K");
  if (!check.ok()) return check.Result();
  const int64_t size = check.Dim('R');
  RequireLatentCache(call, kCache, size + check.Dim('P'), &check);
  check.Require(size >= 1 && size <= kMaxLatentSize,
                "q must have 1 to " + std::to_string(kMaxLatentSize) + " elements a head, got " +
                    std::to_string(size));
  if (!check.ok()) return check.Result();
  const double scale = call.attributes->Get("scale", 0);
  check.Require(scale > 0 && std::isfinite(scale), "attribute scale must be a number above 0");
  const auto sums = static_cast<int64_t>(outputs) - 1;
  check.IntegerAttribute("sums", /*fallback=*/0, sums, sums);
  check.IntegerAttribute("window", 0, 0, int64_t{1} << 30);
  const bool has_window = call.attributes->GetInt("window", 0) > 0;
  check.Require(!has_window || (TokensOfRow(call, kCache) == 1 && !chooses),
                "with a window, queries see all tokens, and a row of the cache is one");
  return check.Result();
}

int64_t StrideOf(const TensorView& view) { return view.row_stride_bytes / kFloatBytes; }

// The operands of the request's rows; the range of rows is not set.
LatentRows RowsOf(const OpCall& call, int64_t request) {
  const TensorView& q = call.inputs[0];
  const TensorView& rope = call.inputs[kRope];
  const TensorView& cache = call.inputs[kCache];
  const TensorView& y = call.outputs[0];
  const BatchView& batch = *call.batch;
  const int32_t begin = batch.query_start[request], end = batch.query_start[request + 1];
  constexpr double kLog2E = 1.4426950408889634;
  return {.q = q.Row<const float>(begin),
          .q_stride = StrideOf(q),
          .rope = rope.rank > 0 ? rope.Row<const float>(begin) : nullptr,
          .rope_stride = rope.rank > 0 ? StrideOf(rope) : 0,
          .y = y.Row<float>(begin),
          .y_stride = StrideOf(y),
          .heads = static_cast<int32_t>(q.shape[1]),
          .size = static_cast<int32_t>(q.shape[2]),
          .rope_size = rope.rank > 0 ? static_cast<int32_t>(rope.shape[2]) : 0,
          .first_position = batch.seq_lens[request] - (end - begin),
          .window = static_cast<int32_t>(call.attributes->GetInt("window", 0)),
          .log2_scale = static_cast<float>(call.attributes->Get("scale", 1) * kLog2E),
          .cache = cache.data,
          .page_stride_bytes = cache.row_stride_bytes,
          .block_size = static_cast<int32_t>(cache.shape[1]),
          .bf16_elements = static_cast<int32_t>(call.attributes->GetInt(kBf16Elements, 0)),
          .tokens_of_row = TokensOfRow(call, kCache),
          .block_table = batch.block_table + request * batch.block_table_stride};
}

// Restricts a tile of one token to the tokens that it has chosen.
void Restrict(const OpCall& call, int64_t token, LatentRows* tile) {
  const TensorView& chosen = call.inputs[kChosen];
  const int32_t* const positions = chosen.Row<const int32_t>(token);
  const int32_t* const end = positions + chosen.shape[1];
  tile->chosen = positions;
  tile->num_chosen = static_cast<int32_t>(std::find(positions, end, -1) - positions);
}

// Stores lse of the rows of a tile whose first is row (token, head) `row` of the step.
void StoreLse(const OpCall& call, int64_t row, std::span<const LatentTotal> totals) {
  constexpr float kLn2 = 0.69314718f;
  const int64_t heads = call.inputs[0].shape[1];
  for (const LatentTotal& total : totals) {
    call.outputs[1].Row<float>(row / heads)[row % heads] =
        total.log2_max * kLn2 + std::log(total.sum);
    ++row;
  }
}

// Elements of a row of the cache.
int64_t WidthOf(const OpCall& call) {
  return call.inputs[0].shape[2] + (HasInput(call, kRope) ? call.inputs[kRope].shape[2] : 0);
}

// Bytes of what a thread decodes: of a cache in fp8.
int64_t DecodedBytes(const OpCall& call) {
  if (call.inputs[kCache].dtype != DType::kF8E4M3) return 0;
  constexpr int64_t kAlignment = 64;
  const int64_t bytes = kLatentKeys * WidthOf(call) * kFloatBytes;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

int64_t WorkspaceBytes(const OpCall& call, int32_t num_threads) {
  return DecodedBytes(call) * num_threads;
}

// Rows that a thread takes at a time: fewer for small steps, so that all threads work.
int64_t RowsOfTile(int64_t rows, int32_t threads) {
  constexpr int64_t kFewest = 4;
  const int64_t shared = (rows + threads - 1) / threads;
  return std::clamp((shared + kFewest - 1) / kFewest * kFewest, kFewest, int64_t{kMaxLatentRows});
}

// The rows (token, head) of the whole step are one list, divided into tiles at multiples of `size`
// and at the ends of requests, or of tokens if each has chosen others.
template <const LatentKernel* kKernel>
void Run(const OpCall& call, KernelContext& context) {
  const BatchView& batch = *call.batch;
  const DType dtype = call.inputs[kCache].dtype;
  const auto attend = dtype == DType::kF32    ? kKernel->f32
                      : dtype == DType::kBF16 ? kKernel->bf16
                                              : kKernel->f8;
  const int64_t heads = call.inputs[0].shape[1], rows = batch.num_tokens * heads;
  const int64_t size = RowsOfTile(rows, context.pool->num_threads());
  const bool chooses = Chooses(call);
  const int64_t tiles = (rows + size - 1) / size;
  context.pool->ParallelFor(tiles, /*grain=*/1, [&](int64_t first, int64_t last, int thread) {
    std::byte* const decoded = context.workspace.data() + thread * DecodedBytes(call);
    int64_t row = first * size;
    const int64_t end = std::min(last * size, rows);
    const int32_t* const starts = batch.query_start;
    int64_t request =
        std::upper_bound(starts, starts + batch.num_requests + 1, row / heads) - starts - 1;
    while (row < end) {
      while (starts[request + 1] * heads <= row) ++request;
      const int64_t begin = starts[request] * heads;
      const int64_t token = row / heads;
      const int64_t last_row = chooses ? (token + 1) * heads : starts[request + 1] * heads;
      const int64_t stop = std::min({end, row + size, last_row});
      LatentRows tile = RowsOf(call, request);
      tile.first_row = static_cast<int32_t>(row - begin);
      tile.rows = static_cast<int32_t>(stop - row);
      tile.decoded = reinterpret_cast<float*>(decoded);
      if (chooses) Restrict(call, token, &tile);
      LatentTotal totals[kMaxLatentRows];
      if (WantsLse(call)) tile.totals = totals;
      attend(tile);
      if (WantsLse(call)) StoreLse(call, row, std::span(totals).first(stop - row));
      row = stop;
    }
  });
}

constexpr F32Kernel kReference{.act_inputs = 0b11, .run = latent_attention::RunReference};

template <const LatentKernel* kKernel>
constexpr Kernel KernelOf(std::string_view name, int32_t priority,
                          bool (*supports)(const device::Capabilities&, const OpCall&)) {
  return {.op = "latent_attention",
          .name = name,
          .priority = priority,
          .supports = supports,
          .run = Run<kKernel>,
          .workspace_bytes = WorkspaceBytes};
}

constexpr Kernel kKernels[] = {
#if defined(__x86_64__)
    KernelOf<&kLatentAvx512>("avx512", 30, OnAvx512),
    KernelOf<&kLatentAvx2>("avx2", 20, OnAvx2),
#endif
    KernelOf<&kLatentPortable>("portable", 10, OnEveryCpu),
    WidenedReference<&kReference>("latent_attention"),
};

constexpr OpDefinition kDefinition{"latent_attention", CheckLatentAttention, kKernels};

}  // namespace

const OpDefinition& LatentAttentionOp() { return kDefinition; }

}  // namespace pagemill::ops
