#include "cc/ops/attention/attention.h"

#include "cuda/gpu_batch.h"
#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/attention/attend_tile.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/kernels.h"

namespace pagemill::gpu {
namespace {

constexpr int64_t kMaxHeadDim = 512;

// Scores of a call.
struct Scoring {
  const float* data;  // biases of distances from -reach to reach, or null
  int64_t reach;
  float scale;
  bool causal;
  int64_t window;  // 0: none
};

// The tokens of one request, for one head and a tile of queries.
template <typename T>
struct RequestKeys {
  Rows<const T> k, v;  // from the request's first token on
  const float* biases;
  Scoring scoring;
  int64_t first_query;       // of the tile, from the request's first token on: may be negative
  int64_t queries, num_keys;  // of the tile, and of the request

  PAGEMILL_DEVICE const T* Key(int64_t key) const { return k[key]; }
  PAGEMILL_DEVICE const T* Value(int64_t key) const { return v[key]; }

  PAGEMILL_DEVICE bool IsSeen(int64_t query, int64_t key) const {
    if (query < 0 || query >= num_keys || (scoring.causal && key > query)) return false;
    const int64_t distance = key < query ? query - key : key - query;
    return scoring.window == 0 || distance < scoring.window;
  }
  PAGEMILL_DEVICE float Score(int row, int64_t key, float dot) const {
    const int64_t query = first_query + row, reach = scoring.reach;
    if (row >= queries || !IsSeen(query, key)) return -INFINITY;
    const int64_t distance = key - query;
    const int64_t within = distance < -reach ? -reach : distance > reach ? reach : distance;
    return dot * scoring.scale + (biases == nullptr ? 0 : biases[reach + within]);
  }
  PAGEMILL_DEVICE bool AllSee(int64_t first, int64_t end) const {
    const int64_t last_query = first_query + kTileRows - 1;
    return queries == kTileRows && IsSeen(first_query, first) && IsSeen(first_query, end - 1) &&
           IsSeen(last_query, first) && IsSeen(last_query, end - 1);
  }
  // The keys that some query sees.
  PAGEMILL_DEVICE int64_t FirstKey() const {
    const int64_t query = first_query < 0 ? 0 : first_query;
    return scoring.window == 0 || query < scoring.window ? 0 : query + 1 - scoring.window;
  }
  PAGEMILL_DEVICE int64_t EndKey() const {
    const int64_t end_query = first_query + queries < num_keys ? first_query + queries : num_keys;
    if (scoring.causal) return end_query;
    const bool all = scoring.window == 0 || num_keys - end_query < scoring.window;
    return all ? num_keys : end_query + scoring.window - 1;
  }
};

// A block for kTileRows tokens of the step, which may belong to several requests, and a head.
template <typename T, int kChunks>
PAGEMILL_KERNEL_OF(kTileThreads, kChunks > 1 ? 1 : 2)
AttendTokens(Rows<const T> q, Rows<const T> k, Rows<const T> v, Rows<T> y, Scoring scoring,
             int head_dim, int group_size, const int32_t* query_start, int32_t num_requests) {
  const int64_t head = BlockIndex().y, first = int64_t{BlockIndex().x} * kTileRows;
  const int64_t left = query_start[num_requests] - first;
  const int rows = static_cast<int>(left < kTileRows ? left : kTileRows);
  if (rows <= 0) return;
  AttendTile<T, kChunks> tile(head_dim, head_dim);
  tile.LoadRows([&](int row, int d) {
    return row < rows ? ToFloat(q[first + row][head * head_dim + d]) : 0;
  });
  const int64_t in_row = head / group_size * head_dim;
  int32_t request = RequestOf(query_start, num_requests, static_cast<int32_t>(first));
  for (; request < num_requests && query_start[request] < first + rows; ++request) {
    const int64_t start = query_start[request];
    const RequestKeys<T> keys = {{k[start] + in_row, k.stride},
                                 {v[start] + in_row, v.stride},
                                 scoring.data == nullptr
                                     ? nullptr
                                     : scoring.data + head * (2 * scoring.reach + 1),
                                 scoring,
                                 first - start,
                                 rows,
                                 query_start[request + 1] - start};
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
  const bool has_biases = call.inputs.size() > ops::kAttentionBiases;
  const Scoring scoring = {
      .data = has_biases ? call.inputs[ops::kAttentionBiases].Data<const float>() : nullptr,
      .reach = has_biases ? call.inputs[ops::kAttentionBiases].shape[1] / 2 : 0,
      .scale = static_cast<float>(call.attributes->Get("scale", 1)),
      .causal = call.attributes->GetInt("causal", 1) != 0,
      .window = call.attributes->GetInt("window", 0)};
  const int64_t heads = q.shape[1], head_dim = q.shape[2];
  const LaunchShape shape = {
      .blocks = {DivideUp(q.shape[0], kTileRows), static_cast<uint32_t>(heads)},
      .threads = {kTileThreads},
      .shared_bytes = AttendSharedBytes(head_dim)};
  WithActType(q.dtype, [&]<typename T>(T) {
    Launch(*context.stream, shape, KernelFor<T>(head_dim), RowsOf<const T>(q),
           RowsOf<const T>(k), RowsOf<const T>(call.inputs[2]), RowsOf<T>(call.outputs[0]),
           scoring, head_dim, heads / k.shape[1], call.batch->query_start,
           call.batch->num_requests);
  });
}

bool Supports(const device::Capabilities& caps, const ops::OpCall& call) {
  return OnEveryGpu(caps, call) && AttendSharedBytes(call.inputs[0].shape[2]) <=
                                       caps.gpu.shared_memory_per_block_bytes;
}

constexpr ops::Kernel kKernels[] = {{"attention", "gpu", 10, Supports, Run}};

}  // namespace

std::span<const ops::Kernel> AttentionKernels() { return kKernels; }

}  // namespace pagemill::gpu
