#include "cc/ops/select_tokens/select_tokens.h"

#include <algorithm>

#include "cc/ops/latent_write/latent_cache.h"
#include "cuda/gpu_batch.h"
#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/attention/dot_tile.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/kernels.h"
#include "cuda/ops/select_tokens/best_keys.h"

namespace pagemill::gpu {
namespace {

// Blocks for few tokens: each takes a part of a token's context.
constexpr int64_t kBlocks = 256;
constexpr int64_t kMaxParts = 32;
constexpr int kSumFloats = kTileRows + 1;  // of a key, in shared memory: odd, for other banks

struct Sizes {
  int heads, index, rope, choices, parts;
};

struct KeptKey {
  uint32_t key;
  int32_t position;  // -1: none
};

PAGEMILL_DEVICE int PaddedHeads(int heads) {
  return (heads + kTileRows - 1) / kTileRows * kTileRows;
}

// Scores of keys of one token of the step.
template <typename C>
struct TokenScorer {
  const float* weights;  // of heads
  Rows<const C> pages;
  const int32_t* table;
  int32_t block_size;
  int width, heads;
  float* sums;  // [kTileKeys, kSumFloats] in shared memory

  // The key from `first` on of each thread; those of `end` on have none.
  PAGEMILL_DEVICE float Score(DotTile& tile, int64_t first, int64_t end) const {
    const int thread = static_cast<int>(ThreadIndex().x), row = thread / kThreadsOfRow;
    float score = 0;
    for (int64_t key = first; key < first + kTileThreads && key < end; key += kTileKeys) {
      float of_keys[kKeysOfThread] = {};
      for (int head = 0; head < heads; head += kTileRows) {
        float dots[kKeysOfThread];
        tile.Multiply([&](int64_t k) { return KeyAt(k); }, key, end, head, dots);
        const float weight = head + row < heads ? weights[head + row] : 0;
        for (int i = 0; i < kKeysOfThread; ++i) of_keys[i] += weight * (dots[i] < 0 ? 0 : dots[i]);
      }
      for (int i = 0; i < kKeysOfThread; ++i) {
        sums[(thread % kThreadsOfRow + i * kThreadsOfRow) * kSumFloats + row] = of_keys[i];
      }
      SyncBlock();  // the next one is in Multiply()
      const int64_t own = first + thread - key;
      for (int i = 0; own >= 0 && own < kTileKeys && i < kTileRows; ++i) {
        score += sums[own * kSumFloats + i];
      }
    }
    return score;
  }

  PAGEMILL_DEVICE const C* KeyAt(int64_t key) const {
    return pages[table[key / block_size]] + key % block_size * width;
  }
};

PAGEMILL_DEVICE void StoreChoice(const BestKeys& best, int choices, int32_t* chosen) {
  for (int i = static_cast<int>(ThreadIndex().x); i < choices; i += kTileThreads) {
    chosen[i] = i < best.count() ? best.position(i) : -1;
  }
}

// Block (token, part): chooses among a part of the token's context. Stores the choice in `kept` if
// there are several parts.
template <typename T, typename C>
PAGEMILL_KERNEL SelectPart(Rows<const T> q, Rows<const T> rope, Rows<const float> weights,
                           Rows<const C> pages, Rows<int32_t> chosen, KeptKey* kept, Sizes sizes,
                           StepTokens batch) {
  const int64_t token = BlockIndex().x, part = BlockIndex().y;
  const int32_t request =
      RequestOf(batch.query_start, batch.num_requests, static_cast<int32_t>(token));
  if (request == batch.num_requests) return;
  DotTile tile(sizes.index + sizes.rope, PaddedHeads(sizes.heads), DynamicShared<float>());
  const TokenScorer<C> scorer = {.weights = weights[token],
                                 .pages = pages,
                                 .table = batch.data + request * batch.table_stride,
                                 .block_size = batch.block_size,
                                 .width = sizes.index + sizes.rope,
                                 .heads = sizes.heads,
                                 .sums = tile.rest()};
  const int capacity = static_cast<int>(BestKeysCapacity(sizes.choices));
  BestKeys best(sizes.choices, capacity, tile.rest() + kTileKeys * kSumFloats);
  tile.LoadRows([&](int head, int d) -> float {
    if (head >= sizes.heads) return 0;
    return d < sizes.index ? ToFloat(q[token][head * sizes.index + d])
                           : ToFloat(rope[token][head * sizes.rope + d - sizes.index]);
  });
  const int64_t visible = batch.seq_lens[request] - batch.query_start[request + 1] + token + 1;
  const int64_t end = visible * (part + 1) / sizes.parts;
  for (int64_t first = visible * part / sizes.parts; first < end; first += kTileThreads) {
    const float score = scorer.Score(tile, first, end);
    const int64_t position = first + ThreadIndex().x;
    best.Offer(OrderedKey(score), static_cast<int32_t>(position), position < end);
  }
  best.Finish();
  if (sizes.parts == 1) return StoreChoice(best, sizes.choices, chosen[token]);
  KeptKey* const to = kept + (token * sizes.parts + part) * sizes.choices;
  for (int i = static_cast<int>(ThreadIndex().x); i < sizes.choices; i += kTileThreads) {
    to[i] = i < best.count() ? KeptKey{best.key(i), best.position(i)} : KeptKey{0, -1};
  }
}

// A block for each token: chooses among the choices of its parts.
PAGEMILL_KERNEL MergeParts(const KeptKey* kept, Rows<int32_t> chosen, Sizes sizes,
                           StepTokens batch) {
  const int64_t token = BlockIndex().x;
  if (token >= batch.query_start[batch.num_requests]) return;
  const int capacity = static_cast<int>(BestKeysCapacity(sizes.choices));
  BestKeys best(sizes.choices, capacity, DynamicShared<float>());
  const int count = sizes.parts * sizes.choices;
  for (int first = 0; first < count; first += kTileThreads) {
    const int i = first + static_cast<int>(ThreadIndex().x);
    const KeptKey own = i < count ? kept[token * count + i] : KeptKey{0, -1};
    best.Offer(own.key, own.position, own.position >= 0);
  }
  best.Finish();
  StoreChoice(best, sizes.choices, chosen[token]);
}

int64_t PartsOf(int64_t tokens) {
  return std::clamp<int64_t>(kBlocks / std::max<int64_t>(tokens, 1), 1, kMaxParts);
}

// Enough for any number of tokens.
int64_t WorkspaceBytes(const ops::OpCall& call, int32_t) {
  return kBlocks * call.outputs[0].shape[1] * static_cast<int64_t>(sizeof(KeptKey));
}

int64_t SharedBytes(const ops::OpCall& call) {
  const int64_t heads = (call.inputs[0].shape[1] + kTileRows - 1) / kTileRows * kTileRows;
  return DotSharedBytes(heads, call.inputs[0].shape[2] + call.inputs[1].shape[2]) +
         kTileKeys * kSumFloats * static_cast<int64_t>(sizeof(float)) +
         BestKeysSharedBytes(call.outputs[0].shape[1]);
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const TensorView& q = call.inputs[0];
  const TensorView& rope = call.inputs[1];
  const TensorView& cache = call.inputs[3];
  const Rows<int32_t> chosen = RowsOf<int32_t>(call.outputs[0]);
  const int64_t choices = call.outputs[0].shape[1], parts = PartsOf(q.shape[0]);
  const uint32_t tokens = static_cast<uint32_t>(q.shape[0]);
  const Sizes sizes = {static_cast<int>(q.shape[1]), static_cast<int>(q.shape[2]),
                       static_cast<int>(rope.shape[2]), static_cast<int>(choices),
                       static_cast<int>(parts)};
  const StepTokens batch = StepTokensOf(*call.batch);
  auto* const kept = reinterpret_cast<KeptKey*>(context.workspace.data());
  const LaunchShape shape = {.blocks = {tokens, static_cast<uint32_t>(parts)},
                             .threads = {kTileThreads},
                             .shared_bytes = SharedBytes(call)};
  WithActType(q.dtype, [&]<typename T>(T) {
    const auto select = [&]<typename C>(C) {
      Launch(*context.stream, shape, SelectPart<T, C>, RowsOf<const T>(q), RowsOf<const T>(rope),
             RowsOf<const float>(call.inputs[2]), RowsOf<const C>(cache), chosen, kept, sizes,
             batch);
    };
    cache.dtype == DType::kF32 ? select(float{}) : select(BFloat16{});
  });
  if (parts == 1) return;
  Launch(*context.stream,
         {.blocks = {tokens},
          .threads = {kTileThreads},
          .shared_bytes = BestKeysSharedBytes(choices)},
         MergeParts, kept, chosen, sizes, batch);
}

// Not rows that stand for several tokens or have no rotated part.
bool Supports(const device::Capabilities& caps, const ops::OpCall& call) {
  return OnEveryGpu(caps, call) && ops::HasInput(call, /*input=*/1) &&
         ops::TokensOfRow(call, /*input=*/3) == 1 &&
         SharedBytes(call) <= caps.gpu.shared_memory_per_block_bytes;
}

constexpr ops::Kernel kKernels[] = {
    {"select_tokens", "gpu", 10, Supports, Run, WorkspaceBytes}};

}  // namespace

std::span<const ops::Kernel> SelectTokensKernels() { return kKernels; }

}  // namespace pagemill::gpu
