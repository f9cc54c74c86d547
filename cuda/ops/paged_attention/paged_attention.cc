#include "cc/ops/paged_attention/paged_attention.h"

#include "cuda/gpu_batch.h"
#include "cuda/gpu_launch.h"
#include "cuda/gpu_reduce.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/kernels.h"
#include "cuda/ops/kv_write/int4_rows.h"
#include "cuda/ops/kv_write/kv_cache_types.h"
#include "cuda/ops/paged_attention/attention_plan.h"
#include "cuda/ops/paged_attention/attention_scores.h"
#include "cuda/ops/paged_attention/matrix_cores.h"
#include "cuda/ops/paged_attention/tensor_cores.h"
#if defined(__CUDACC__)
#include "cuda/ops/paged_attention/flashinfer/flashinfer.h"
#include "cuda/ops/paged_attention/flashinfer/hopper.h"
#endif

namespace pagemill::gpu {
namespace {

constexpr int kThreads = 64;
constexpr int kTile = kThreads;  // keys, which begin at multiples of it: a thread scores one
constexpr int kMaxHeadDim = 512;
constexpr int kDimsPerThread = kMaxHeadDim / kThreads;

// The scale of row `row` of a block: rows of K by head and token, then those of V.
template <typename C>
PAGEMILL_DEVICE float RowScale(const AttentionParams& p, const C* block, int64_t row) {
  if constexpr (kHasRowScales<C>) {
    return reinterpret_cast<const float*>(reinterpret_cast<const char*>(block) +
                                          p.scales_offset)[row];
  } else {
    return 1;
  }
}

template <typename C>
PAGEMILL_DEVICE float Dot(const AttentionParams& p, const float* q, const C* block,
                          int64_t kv_head, int64_t offset) {
  const C* const key = block + kv_head * p.head_dim * p.block_size + offset * p.key.token;
  float sums[4] = {};
  int64_t d = 0;
  for (; d + 4 <= p.head_dim; d += 4) {
    for (int i = 0; i < 4; ++i) sums[i] += q[d + i] * ToFloat(key[(d + i) * p.key.element]);
  }
  for (; d < p.head_dim; ++d) sums[0] += q[d] * ToFloat(key[d * p.key.element]);
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) *
         RowScale(p, block, kv_head * p.block_size + offset);
}

// Likewise of a block with values of int4, whose keys are of int4, and q rotated, or of int8.
PAGEMILL_DEVICE float Dot(const AttentionParams& p, const float* q, const Int4Values* block,
                          int64_t kv_head, int64_t offset, bool int4_keys) {
  if (!int4_keys) {
    return Dot(p, q, reinterpret_cast<const ScaledInt8*>(block), kv_head, offset);
  }
  const Int4Values* const keys = block + kv_head * Int4RowBytes(p.head_dim) * p.block_size;
  return Int4Product(q, static_cast<int>(p.head_dim), &keys->byte, static_cast<int>(offset),
                     static_cast<int>(p.block_size)) *
         RowScale(p, block, kv_head * p.block_size + offset);
}

// Adds to sums, of which this thread has elements thread + i * kThreads, the values of keys of a
// tile times their weights. These include the scales, and are 0 for keys that are not to be added.
PAGEMILL_DEVICE void AddInt4Values(const AttentionParams& p, const int32_t* table,
                                   Rows<const Int4Values> cache, int64_t kv_head, KeyRange keys,
                                   const float* weights, float (&sums)[kDimsPerThread]) {
  const int thread = static_cast<int>(ThreadIndex().x), head_dim = static_cast<int>(p.head_dim);
  const int block_size = static_cast<int>(p.block_size), high = static_cast<int>(keys.high);
  const int row_bytes = static_cast<int>(Int4RowBytes(head_dim));
  const int64_t of_head = Int4ValuesOffset(p) + kv_head * block_size * row_bytes;
  for (int four = static_cast<int>(keys.low) / 4 * 4; four < high; four += 4) {
    const uint8_t* const values =
        &cache[table[four / block_size]]->byte + of_head + four % block_size * row_bytes;
    const float* const shares = weights + four % kTile;
    for (int i = 0; i < kDimsPerThread; ++i) {
      const int d = thread + i * kThreads;
      if (d < head_dim) sums[i] = AddInt4Products(sums[i], values, d, shares);
    }
  }
}

// Rotates a row in shared memory by the block.
PAGEMILL_DEVICE void RotateByBlock(float* row, int64_t head_dim) {
  RotateTogether(row, static_cast<int>(head_dim), static_cast<int>(ThreadIndex().x), kThreads,
                 [] { SyncBlock(); });
}

// Rotates sums as AddInt4Values() has them, in memory that no thread still reads.
PAGEMILL_DEVICE void RotateSums(float (&sums)[kDimsPerThread], float* row, int64_t head_dim) {
  const int thread = static_cast<int>(ThreadIndex().x);
  for (int i = 0; i < kDimsPerThread; ++i) {
    const int64_t d = thread + i * kThreads;
    if (d < head_dim) row[d] = sums[i];
  }
  RotateByBlock(row, head_dim);
  for (int i = 0; i < kDimsPerThread; ++i) {
    const int64_t d = thread + i * kThreads;
    if (d < head_dim) sums[i] = row[d];
  }
}

// Block (t, head): one head of one query, over tiles of keys in order, with the softmax of the keys
// so far. Bits depend on the keys that the query sees alone.
template <typename T, typename C>
PAGEMILL_KERNEL AttendHead(AttentionParams p, StepTokens batch, Rows<const T> q,
                           Rows<const C> cache, Rows<T> y, bool int4_keys) {
  constexpr bool kInt4Values = std::is_same_v<C, Int4Values>;
  PAGEMILL_SHARED(float[kMaxHeadDim], query);
  PAGEMILL_SHARED(float[kTile], weights);
  const int thread = static_cast<int>(ThreadIndex().x);
  const int64_t t = BlockIndex().x, head = BlockIndex().y;
  const int32_t request =
      RequestOf(batch.query_start, batch.num_requests, static_cast<int32_t>(t));
  if (request == batch.num_requests) return;
  const int32_t seq_len = batch.seq_lens[request];
  const QueryPlace place = {
      .token = t, .position = seq_len - batch.query_start[request + 1] + t, .seq_len = seq_len};
  const int32_t* const table = batch.data + request * batch.table_stride;
  const int64_t kv_head = head / (p.q_heads / p.kv_heads);
  for (int64_t d = thread; d < p.head_dim; d += kThreads) {
    query[d] = ToFloat(q[t][head * p.head_dim + d]);
  }
  if constexpr (kInt4Values) {
    const int64_t behind = p.head_dim + thread;
    if (behind < 2 * Int4RowBytes(p.head_dim)) query[behind] = 0;
    RotateByBlock(query, int4_keys ? p.head_dim : 1);
  } else {
    SyncBlock();
  }
  const KeyRange keys = VisibleKeys(p, place);
  const float growth = Growth(p, place.position);
  float most = p.sinks == nullptr ? -INFINITY : p.sinks[head];
  float sum = p.sinks == nullptr || thread > 0 ? 0 : 1;  // of this thread's weights
  float sums[kDimsPerThread] = {};
  for (int64_t tile = keys.low / kTile * kTile; tile < keys.high; tile += kTile) {
    const int64_t key = tile + thread;
    const bool visible = key >= keys.low && key < keys.high;
    float score = -INFINITY, value_scale = 1;
    if (visible) {
      float dot;
      if constexpr (kInt4Values) {
        const int block_size = static_cast<int>(p.block_size), at = static_cast<int>(key);
        const Int4Values* const block = cache[table[at / block_size]];
        dot = Dot(p, query, block, kv_head, at % block_size, int4_keys);
        value_scale = RowScale(p, block, (p.kv_heads + kv_head) * block_size + at % block_size);
      } else {
        dot = Dot(p, query, cache[table[key / p.block_size]], kv_head, key % p.block_size);
      }
      score = Score(p, dot, head, growth, key - place.position);
    }
    const float before = most;
    most = fmaxf(most, BlockMax(score));
    const float kept = Exp(before - most);
    const float weight = visible ? Exp(score - most) : 0;
    SyncBlock();  // the weights of the tile before are read
    weights[thread] = weight * value_scale;
    sum = sum * kept + weight;
    SyncBlock();
    for (int i = 0; i < kDimsPerThread; ++i) sums[i] *= kept;
    const int64_t first = tile > keys.low ? tile : keys.low;
    const int64_t last = tile + kTile < keys.high ? tile + kTile : keys.high;
    if constexpr (kInt4Values) {
      AddInt4Values(p, table, cache, kv_head, {first, last}, weights, sums);
    } else {
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
  }
  sum = BlockSum(sum);
  if constexpr (kInt4Values) RotateSums(sums, query, p.head_dim);
  for (int i = 0; i < kDimsPerThread; ++i) {
    const int64_t d = thread + i * kThreads;
    if (d < p.head_dim) y[t][head * p.head_dim + d] = FromFloat<T>(sums[i] / sum * p.v_scale);
  }
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const ops::PagedAttentionArgs args = ops::ToPagedAttentionArgs(call);
  const LaunchShape shape = {.blocks = {static_cast<uint32_t>(args.q.shape[0]),
                                        static_cast<uint32_t>(args.q.shape[1])},
                             .threads = {kThreads}};
  WithActType(args.q.dtype, [&]<typename T>(T) {
    WithCacheType(args.cache.dtype, [&]<typename C>(C) {
      Launch(*context.stream, shape, AttendHead<T, C>, ParamsOf(args), StepTokensOf(*args.batch),
             RowsOf<const T>(args.q), RowsOf<const C>(args.cache), RowsOf<T>(args.y),
             args.cache.dtype == DType::kU4);
    });
  });
}

// Pages that no vector load can read go to the other kernel.
template <auto& kAttend>
void RunAligned(const ops::OpCall& call, ops::KernelContext& context) {
  (HasAlignedRows(call.inputs[1]) ? kAttend : Run)(call, context);
}

#if defined(__CUDACC__)
void RunFlashInferOrGpu(const ops::OpCall& call, ops::KernelContext& context) {
  (FlashInferReads(call) ? RunFlashInfer : Run)(call, context);
}

void RunFlashInferHopperOrGpu(const ops::OpCall& call, ops::KernelContext& context) {
  (FlashInferReads(call) ? RunFlashInferHopper : Run)(call, context);
}
#endif

constexpr ops::BatchPlan kPlan = {.bytes = PagedAttentionPlanBytes,
                                  .make = MakePagedAttentionPlan};

constexpr ops::Kernel kKernels[] = {
    {.op = "paged_attention",
     .name = "tensor_core",
     .priority = 20,
     .supports = SupportsAttentionOnTensorCores,
     .run = RunAligned<AttendOnTensorCores>,
     .workspace_bytes = PagedAttentionStateBytes,
     .activations = ops::Precision::kBf16,
     .plan = &kPlan},
#if !defined(__CUDACC__)
    {.op = "paged_attention",
     .name = "matrix_core",
     .priority = 20,
     .supports = SupportsAttentionOnMatrixCores<32>,
     .run = RunAligned<AttendOnMatrixCores<32>>,
     .workspace_bytes = PagedAttentionStateBytes,
     .activations = ops::Precision::kBf16,
     .plan = &kPlan},
    {.op = "paged_attention",
     .name = "matrix_core",
     .priority = 20,
     .supports = SupportsAttentionOnMatrixCores<64>,
     .run = RunAligned<AttendOnMatrixCores<64>>,
     .workspace_bytes = PagedAttentionStateBytes,
     .activations = ops::Precision::kBf16,
     .plan = &kPlan},
#else
    {.op = "paged_attention",
     .name = "flashinfer",
     .priority = 30,
     .supports = SupportsFlashInfer,
     .run = RunFlashInferOrGpu,
     .workspace_bytes = FlashInferStateBytes,
     .activations = ops::Precision::kBf16,
     .plan = &kFlashInferPlan,
     .varies_with_batch = true},
    {.op = "paged_attention",
     .name = "flashinfer_sm90",
     .priority = 40,
     .supports = SupportsFlashInferHopper,
     .run = RunFlashInferHopperOrGpu,
     .workspace_bytes = FlashInferStateBytes,
     .activations = ops::Precision::kBf16,
     .plan = &kFlashInferHopperPlan,
     .varies_with_batch = true},
#endif
    {.op = "paged_attention", .name = "gpu", .priority = 10, .supports = OnEveryGpu, .run = Run},
};

}  // namespace

std::span<const ops::Kernel> PagedAttentionKernels() { return kKernels; }

}  // namespace pagemill::gpu
