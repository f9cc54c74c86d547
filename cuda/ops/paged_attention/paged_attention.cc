#include "cc/ops/paged_attention/paged_attention.h"

#include "cc/ops/kv_page.h"
#include "cuda/gpu_batch.h"
#include "cuda/gpu_launch.h"
#include "cuda/gpu_reduce.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/kernels.h"
#include "cuda/ops/kv_write/kv_cache_types.h"

namespace pagemill::gpu {
namespace {

constexpr int kThreads = 64;
constexpr int kTile = kThreads;  // keys, which begin at multiples of it: a thread scores one
constexpr int kMaxHeadDim = 512;
constexpr int kDimsPerThread = kMaxHeadDim / kThreads;

// A token's place in its request.
struct TokenPlace {
  int32_t position, seq_len;
};

// What the scores of a call have in common.
struct AttentionParams {
  int64_t block_size;
  int64_t head_dim, q_heads, kv_heads;
  int64_t scales_offset;  // bytes from the beginning of a block; of an int8 cache
  const float* sinks;     // null: none, as below
  const float* slopes;
  const float* biases;
  int64_t bias_reach;
  float scale, v_scale;
  float soft_cap;  // 0: none
  int64_t window;  // 0: none
  int32_t grows_from;  // 0: scores do not grow with the position
  bool chunked, causal;
};

struct KeyRange {
  int64_t low, high;
};

PAGEMILL_DEVICE KeyRange VisibleKeys(const AttentionParams& p, const TokenPlace& place) {
  const int64_t position = place.position, seq_len = place.seq_len;
  KeyRange keys = {0, p.causal ? position + 1 : seq_len};
  if (p.window == 0) return keys;
  if (!p.causal && position + p.window < seq_len) keys.high = position + p.window;
  if (p.chunked) {
    keys.low = position / p.window * p.window;
  } else if (position + 1 > p.window) {
    keys.low = position + 1 - p.window;
  }
  return keys;
}

// The scale of row `row` of an int8 block: rows of K by head and token, then those of V.
template <typename C>
PAGEMILL_DEVICE float RowScale(const AttentionParams& p, const C* block, int64_t row) {
  if constexpr (std::is_same_v<C, ScaledInt8>) {
    return reinterpret_cast<const float*>(reinterpret_cast<const char*>(block) +
                                          p.scales_offset)[row];
  } else {
    return 1;
  }
}

template <typename C>
PAGEMILL_DEVICE float Score(const AttentionParams& p, const float* q, const C* block,
                            int64_t kv_head, int64_t offset) {
  const C* const key = block + kv_head * p.head_dim * p.block_size + offset;
  float sums[4] = {};
  int64_t d = 0;
  for (; d + 4 <= p.head_dim; d += 4) {
    for (int i = 0; i < 4; ++i) sums[i] += q[d + i] * ToFloat(key[(d + i) * p.block_size]);
  }
  for (; d < p.head_dim; ++d) sums[0] += q[d] * ToFloat(key[d * p.block_size]);
  const float dot = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  const float score = dot * p.scale * RowScale(p, block, kv_head * p.block_size + offset);
  return p.soft_cap > 0 ? p.soft_cap * tanhf(score / p.soft_cap) : score;
}

// What scores of a query are multiplied with because of its position.
PAGEMILL_DEVICE float Growth(const AttentionParams& p, int32_t position) {
  if (p.grows_from == 0 || position <= p.grows_from) return 1;
  return logf(static_cast<float>(position)) / logf(static_cast<float>(p.grows_from));
}

// What is added to a score because of the distance from the query to the key.
PAGEMILL_DEVICE float DistanceTerm(const AttentionParams& p, int64_t head, int64_t distance) {
  float term = p.slopes == nullptr ? 0 : p.slopes[head] * static_cast<float>(distance);
  if (p.biases != nullptr) {
    const int64_t reach = p.bias_reach;
    const int64_t within = distance < -reach ? -reach : distance > reach ? reach : distance;
    term += p.biases[head * (2 * reach + 1) + reach + within];
  }
  return term;
}

// Block (t, head): one head of one query, over tiles of keys in order, with the softmax of the keys
// so far. Bits depend on the keys that the query sees alone.
template <typename T, typename C>
PAGEMILL_KERNEL AttendHead(AttentionParams p, StepTokens batch, Rows<const T> q,
                           Rows<const C> cache, Rows<T> y) {
  PAGEMILL_SHARED(float[kMaxHeadDim], query);
  PAGEMILL_SHARED(float[kTile], weights);
  const int thread = static_cast<int>(ThreadIndex().x);
  const int64_t t = BlockIndex().x, head = BlockIndex().y;
  const int32_t request =
      RequestOf(batch.query_start, batch.num_requests, static_cast<int32_t>(t));
  if (request == batch.num_requests) return;
  const int32_t seq_len = batch.seq_lens[request];
  const TokenPlace place = {seq_len - batch.query_start[request + 1] + static_cast<int32_t>(t),
                            seq_len};
  const int32_t* const table = batch.data + request * batch.table_stride;
  const int64_t kv_head = head / (p.q_heads / p.kv_heads);
  for (int64_t d = thread; d < p.head_dim; d += kThreads) {
    query[d] = ToFloat(q[t][head * p.head_dim + d]);
  }
  SyncBlock();
  const KeyRange keys = VisibleKeys(p, place);
  const float growth = Growth(p, place.position);
  float most = p.sinks == nullptr ? -INFINITY : p.sinks[head];
  float sum = p.sinks == nullptr || thread > 0 ? 0 : 1;  // of this thread's weights
  float sums[kDimsPerThread] = {};
  for (int64_t tile = keys.low / kTile * kTile; tile < keys.high; tile += kTile) {
    const int64_t key = tile + thread;
    const bool visible = key >= keys.low && key < keys.high;
    float score = -INFINITY;
    if (visible) {
      score = growth * Score(p, query, cache[table[key / p.block_size]], kv_head,
                             key % p.block_size) +
              DistanceTerm(p, head, key - place.position);
    }
    const float before = most;
    most = fmaxf(most, BlockMax(score));
    const float kept = Exp(before - most);
    const float weight = visible ? Exp(score - most) : 0;
    SyncBlock();  // the weights of the tile before are read
    weights[thread] = weight;
    sum = sum * kept + weight;
    SyncBlock();
    for (int i = 0; i < kDimsPerThread; ++i) sums[i] *= kept;
    const int64_t first = tile > keys.low ? tile : keys.low;
    const int64_t last = tile + kTile < keys.high ? tile + kTile : keys.high;
    for (int64_t other = first; other < last; ++other) {
      const C* const block = cache[table[other / p.block_size]];
      const int64_t row = (p.kv_heads + kv_head) * p.block_size + other % p.block_size;
      const float share = weights[other - tile] * RowScale(p, block, row);
      for (int i = 0; i < kDimsPerThread; ++i) {
        const int64_t d = thread + i * kThreads;
        if (d < p.head_dim) sums[i] += share * ToFloat(block[row * p.head_dim + d]);
      }
    }
  }
  sum = BlockSum(sum);
  for (int i = 0; i < kDimsPerThread; ++i) {
    const int64_t d = thread + i * kThreads;
    if (d < p.head_dim) y[t][head * p.head_dim + d] = FromFloat<T>(sums[i] / sum * p.v_scale);
  }
}

AttentionParams ParamsOf(const ops::PagedAttentionArgs& args) {
  const int64_t head_dim = args.q.shape[2];
  return {.block_size = args.batch->block_size,
          .head_dim = head_dim,
          .q_heads = args.q.shape[1],
          .kv_heads = args.kv_heads,
          .scales_offset =
              ops::KvScalesOffsetBytes({args.kv_heads, head_dim}, args.batch->block_size),
          .sinks = args.sinks,
          .slopes = args.slopes,
          .biases = args.biases,
          .bias_reach = args.bias_reach,
          .scale = args.scale * args.kv_scales.k,
          .v_scale = args.kv_scales.v,
          .soft_cap = args.soft_cap,
          .window = args.window,
          .grows_from = args.grows_from,
          .chunked = args.chunked,
          .causal = args.causal};
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const ops::PagedAttentionArgs args = ops::ToPagedAttentionArgs(call);
  const LaunchShape shape = {.blocks = {static_cast<uint32_t>(args.q.shape[0]),
                                        static_cast<uint32_t>(args.q.shape[1])},
                             .threads = {kThreads}};
  WithActType(args.q.dtype, [&]<typename T>(T) {
    WithCacheType(args.cache.dtype, [&]<typename C>(C) {
      Launch(*context.stream, shape, AttendHead<T, C>, ParamsOf(args),
             StepTokensOf(*args.batch), RowsOf<const T>(args.q), RowsOf<const C>(args.cache),
             RowsOf<T>(args.y));
    });
  });
}

constexpr ops::Kernel kKernels[] = {{"paged_attention", "gpu", 10, OnEveryGpu, Run}};

}  // namespace

std::span<const ops::Kernel> PagedAttentionKernels() { return kKernels; }

}  // namespace pagemill::gpu
