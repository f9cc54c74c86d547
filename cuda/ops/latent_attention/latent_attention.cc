#include "cc/ops/latent_attention/latent_attention.h"

#include "cc/ops/latent_write/latent_cache.h"
#include "cuda/gpu_batch.h"
#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/attention/activations.h"
#include "cuda/ops/attention/attend_tile.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/kernels.h"
#include "cuda/ops/latent_attention/tensor_cores.h"
#include "cuda/ops/latent_write/latent_pages.h"

namespace pagemill::gpu {
namespace {

constexpr size_t kChosen = 3;  // an optional input

struct Sizes {
  int heads, latent, rope;
  float scale;
};

// The cached tokens of one request, for a tile of rows: heads of tokens.
template <typename Pages>
struct LatentKeys {
  Pages pages;
  const int32_t* table;
  int32_t block_size;
  const int32_t* chosen;  // positions of the keys, or null: all
  float scale;
  int64_t position;  // of the request's first token in the step
  int64_t first_row;  // of the tile, from the heads of that token on: may be negative
  int64_t end_row;    // of the request, or of the tile
  int heads;

  PAGEMILL_DEVICE auto Key(int64_t key) const {
    const int32_t at = chosen == nullptr ? static_cast<int32_t>(key) : chosen[key];
    return pages.Row(table[at / block_size], at % block_size);
  }
  PAGEMILL_DEVICE auto Value(int64_t key) const { return Key(key); }
  PAGEMILL_DEVICE bool IsSeen(int64_t row, int64_t key) const {
    return row >= 0 && row < end_row && (chosen != nullptr || key <= position + row / heads);
  }
  PAGEMILL_DEVICE float Score(int row, int64_t key, float dot) const {
    return IsSeen(first_row + row, key) ? dot * scale : -INFINITY;
  }
  PAGEMILL_DEVICE bool AllSee(int64_t, int64_t end) const {
    return IsSeen(first_row, end - 1) && first_row + kTileRows <= end_row;
  }
};

PAGEMILL_DEVICE int64_t CountChosen(const int32_t* chosen, int64_t most) {
  int64_t low = 0, high = most;  // -1 is behind the last
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (chosen[middle] < 0) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

// A block for kTileRows rows of the step, heads of one token after those of the other. Tokens that
// have chosen keys are computed one after the other.
template <typename Pages, int kChunks>
PAGEMILL_KERNEL_OF(kTileThreads, 1)
AttendLatents(Activations q, Activations rope, Pages pages, Rows<const int32_t> chosen,
              int64_t num_chosen, Activations y, Sizes sizes, StepTokens batch) {
  const int64_t heads = sizes.heads, first = int64_t{BlockIndex().x} * kTileRows;
  const int64_t last_row = batch.query_start[batch.num_requests] * heads;
  const int64_t end = first + kTileRows < last_row ? first + kTileRows : last_row;
  if (first >= end) return;
  AttendTile<kChunks> tile(sizes.latent + sizes.rope, sizes.latent);
  tile.LoadRows([&](int row, int d) -> float {
    const int64_t token = (first + row) / heads, head = (first + row) % heads;
    if (first + row >= end) return 0;
    return d < sizes.latent ? q.Load(token, head * sizes.latent + d)
                            : rope.Load(token, head * sizes.rope + d - sizes.latent);
  });
  for (int64_t row = first; row < end;) {
    const int64_t token = row / heads;
    const int32_t request =
        RequestOf(batch.query_start, batch.num_requests, static_cast<int32_t>(token));
    const int64_t begin = batch.query_start[request], stop = batch.query_start[request + 1];
    LatentKeys<Pages> keys = {.pages = pages,
                              .table = batch.data + request * batch.table_stride,
                              .block_size = batch.block_size,
                              .chosen = nullptr,
                              .scale = sizes.scale,
                              .position = batch.seq_lens[request] - (stop - begin),
                              .first_row = first - begin * heads,
                              .end_row = (stop - begin) * heads,
                              .heads = sizes.heads};
    int64_t next = stop * heads < end ? stop * heads : end;
    int64_t num_keys = keys.position + (next - 1) / heads - begin + 1;
    if (chosen.data != nullptr) {
      next = (token + 1) * heads < end ? (token + 1) * heads : end;
      keys.chosen = chosen[token];
      keys.first_row = first - token * heads;
      keys.end_row = heads;
      num_keys = CountChosen(keys.chosen, num_chosen);
    }
    tile.Attend(keys, 0, num_keys);
    row = next;
  }
  tile.Store([&](int row, int d, float value) {
    if (first + row >= end) return;
    y.Store((first + row) / heads, (first + row) % heads * sizes.latent + d, value);
  });
}

template <typename Pages>
auto KernelFor(int64_t size) {
  if (size <= 2 * kTileChunk) return AttendLatents<Pages, 2>;
  if (size <= 8 * kTileChunk) return AttendLatents<Pages, 8>;
  static_assert(ops::kMaxLatentSize == 16 * kTileChunk);
  return AttendLatents<Pages, 16>;
}

int64_t SharedBytes(const ops::OpCall& call) {
  return AttendSharedBytes(call.inputs[0].shape[2] + call.inputs[1].shape[2]);
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const TensorView& q = call.inputs[0];
  const TensorView& rope = call.inputs[1];
  const TensorView& cache = call.inputs[2];
  const bool chooses = call.inputs.size() > kChosen && call.inputs[kChosen].rank > 0;
  const Rows<const int32_t> chosen =
      chooses ? RowsOf<const int32_t>(call.inputs[kChosen]) : Rows<const int32_t>{};
  const Sizes sizes = {static_cast<int>(q.shape[1]), static_cast<int>(q.shape[2]),
                       static_cast<int>(rope.shape[2]),
                       static_cast<float>(call.attributes->Get("scale", 1))};
  const LaunchShape shape = {.blocks = {DivideUp(q.shape[0] * q.shape[1], kTileRows)},
                             .threads = {kTileThreads},
                             .shared_bytes = SharedBytes(call)};
  WithLatentPages(call, cache, sizes.latent + sizes.rope, [&]<typename Pages>(const Pages& pages) {
    Launch(*context.stream, shape, KernelFor<Pages>(q.shape[2]), ActivationsOf(q),
           ActivationsOf(rope), pages, chosen, chooses ? call.inputs[kChosen].shape[1] : 0,
           ActivationsOf(call.outputs[0]), sizes, StepTokensOf(*call.batch));
  });
}

// Neither windows, nor sums of weights, nor rows that stand for several tokens or have no rotated
// part.
bool Supports(const device::Capabilities& caps, const ops::OpCall& call) {
  return OnEveryGpu(caps, call) && call.attributes->GetInt("window", 0) == 0 &&
         call.outputs.size() == 1 && ops::HasInput(call, /*input=*/1) &&
         ops::TokensOfRow(call, /*input=*/2) == 1 &&
         SharedBytes(call) <= caps.gpu.shared_memory_per_block_bytes;
}

// Pages that no vector load can read go to the other kernel.
void RunAligned(const ops::OpCall& call, ops::KernelContext& context) {
  (HasAlignedRows(call.inputs[2]) ? AttendLatentsOnTensorCores : Run)(call, context);
}

constexpr ops::BatchPlan kPlan = {.bytes = LatentPlanBytes, .make = MakeLatentPlan};

constexpr ops::Kernel kKernels[] = {
    {.op = "latent_attention",
     .name = "tensor_core",
     .priority = 20,
     .supports = SupportsLatentsOnTensorCores,
     .run = RunAligned,
     .workspace_bytes = LatentStateBytes,
     .activations = ops::Precision::kBf16,
     .plan = &kPlan},
    {.op = "latent_attention", .name = "gpu", .priority = 10, .supports = Supports, .run = Run},
};

}  // namespace

std::span<const ops::Kernel> LatentAttentionKernels() { return kKernels; }

}  // namespace pagemill::gpu
