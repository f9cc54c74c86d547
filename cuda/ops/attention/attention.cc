#include "cc/ops/attention/attention.h"

#include "cc/ops/attention/listed_keys.h"
#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/attention/attend_tile.h"
#include "cuda/ops/attention/tensor_cores.h"
#include "cuda/ops/attention/token_scores.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/kernels.h"

namespace pagemill::gpu {
namespace {

constexpr int64_t kMaxHeadDim = 512;

// The rows of one request, for one head and a tile of queries.
template <typename T>
struct RequestKeys {
  Rows<const T> k, v;  // from the request's first row on
  const TokenScores& scores;
  int head;
  int start;              // the request's first row
  int first_query;        // of the tile, from the request's first row on: may be negative
  int queries, num_keys;  // of the tile, and of the request

  PAGEMILL_DEVICE const T* Key(int64_t key) const { return k[key]; }
  PAGEMILL_DEVICE const T* Value(int64_t key) const { return v[key]; }

  PAGEMILL_DEVICE SeenKeys SeenBy(int row) const {
    const int query = first_query + row;
    if (row >= queries || query < 0 || query >= num_keys) return {0, 0};
    return scores.SeenBy(start, query, num_keys);
  }
  PAGEMILL_DEVICE float Score(int row, int64_t key, float dot) const {
    const SeenKeys seen = SeenBy(row);
    if (key < seen.low || key >= seen.high) return -INFINITY;
    return scores.Score(dot, head, start, first_query + row, static_cast<int>(key));
  }
  PAGEMILL_DEVICE bool AllSee(int64_t first, int64_t end) const {
    const SeenKeys of_first = SeenBy(0), of_last = SeenBy(kTileRows - 1);
    return of_first.low <= first && of_first.high >= end && of_last.low <= first &&
           of_last.high >= end;
  }
  // The keys that some query sees.
  PAGEMILL_DEVICE int FirstKey() const {
    return scores.SeenBy(start, first_query < 0 ? 0 : first_query, num_keys).low;
  }
  PAGEMILL_DEVICE int EndKey() const {
    const int end_query = first_query + queries < num_keys ? first_query + queries : num_keys;
    return scores.SeenBy(start, end_query - 1, num_keys).high;
  }
};

// A block for kTileRows rows of the step, which may belong to several requests, and a head.
template <typename T, int kChunks>
PAGEMILL_KERNEL_OF(kTileThreads, kChunks > 1 ? 1 : 2)
AttendTokens(Rows<const T> q, Rows<const T> k, Rows<const T> v, Rows<T> y, TokenScores scores,
             int head_dim, int group_size, RequestRows requests) {
  const int head = static_cast<int>(BlockIndex().y);
  const int first = static_cast<int>(BlockIndex().x) * kTileRows;
  const int left = requests.End() - first, rows = left < kTileRows ? left : kTileRows;
  if (rows <= 0) return;
  AttendTile<kChunks> tile(head_dim, head_dim);
  tile.LoadRows([&](int row, int d) {
    return row < rows ? ToFloat(q[first + row][head * head_dim + d]) : 0;
  });
  if (scores.sinks != nullptr) tile.AddSink(scores.sinks[head]);
  const int in_row = head / group_size * head_dim;
  int32_t request = requests.RequestOfRow(first);
  for (; request < requests.num_requests && requests.Start(request) < first + rows; ++request) {
    const int start = requests.Start(request);
    const RequestKeys<T> keys = {{k[start] + in_row, k.stride},
                                 {v[start] + in_row, v.stride},
                                 scores,
                                 head,
                                 start,
                                 first - start,
                                 rows,
                                 requests.Start(request + 1) - start};
    if (keys.num_keys == 0) continue;
    tile.Attend(keys, keys.FirstKey(), keys.EndKey());
  }
  tile.Store([&](int row, int d, float value) {
    if (row < rows) y[first + row][head * head_dim + d] = FromFloat<T>(value);
  });
}

template <typename T>
auto KernelFor(int64_t head_dim) {
  if (head_dim <= kTileChunk) return AttendTokens<T, 1>;
  if (head_dim <= 2 * kTileChunk) return AttendTokens<T, 2>;
  if (head_dim <= 4 * kTileChunk) return AttendTokens<T, 4>;
  static_assert(kMaxHeadDim == 8 * kTileChunk);
  return AttendTokens<T, 8>;
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const TensorView& q = call.inputs[0];
  const TensorView& k = call.inputs[1];
  const int64_t heads = q.shape[1], head_dim = q.shape[2];
  const LaunchShape shape = {
      .blocks = {DivideUp(q.shape[0], kTileRows), static_cast<uint32_t>(heads)},
      .threads = {kTileThreads},
      .shared_bytes = AttendSharedBytes(head_dim)};
  WithActType(q.dtype, [&]<typename T>(T) {
    Launch(*context.stream, shape, KernelFor<T>(head_dim), RowsOf<const T>(q), RowsOf<const T>(k),
           RowsOf<const T>(call.inputs[2]), RowsOf<T>(call.outputs[0]),
           ScoresOf(call, context.plan), head_dim, heads / k.shape[1], RequestRowsOf(call));
  });
}

bool Supports(const device::Capabilities& caps, const ops::OpCall& call) {
  return OnEveryGpu(caps, call) && AttendSharedBytes(call.inputs[0].shape[2]) <=
                                       caps.gpu.shared_memory_per_block_bytes;
}

// Rows that no vector load can read go to the other kernel.
void RunOnTensorCores(const ops::OpCall& call, ops::KernelContext& context) {
  const bool are_aligned = HasAlignedRows(call.inputs[0]) && HasAlignedRows(call.inputs[1]) &&
                           HasAlignedRows(call.inputs[2]) && HasAlignedRows(call.outputs[0]);
  (are_aligned ? AttendTokensOnTensorCores : Run)(call, context);
}

bool SupportsTensorCores(const device::Capabilities& caps, const ops::OpCall& call) {
  return Supports(caps, call) && SupportsTokensOnTensorCores(caps, call);
}

constexpr ops::Kernel kKernels[] = {
    {.op = "attention",
     .name = "tensor_core",
     .priority = 20,
     .supports = SupportsTensorCores,
     .run = RunOnTensorCores,
     .activations = ops::Precision::kBf16,
     .plan = &ops::kListedKeysPlan},
    {.op = "attention",
     .name = "gpu",
     .priority = 10,
     .supports = Supports,
     .run = Run,
     .plan = &ops::kListedKeysPlan},
};

}  // namespace

std::span<const ops::Kernel> AttentionKernels() { return kKernels; }

}  // namespace pagemill::gpu
