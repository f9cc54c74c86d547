#include <cstddef>
#include <cstdint>

#include "cc/ops/sample/token_scores.h"
#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/ops/argmax/largest.h"
#include "cuda/ops/argmax/row_columns.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/kernels.h"

// A row is read twice: for the largest logit of each thread's columns, then for the sum of
// exponentials and the rank. The most likely tokens are the largest of the threads', one after the
// other: the thread that had it gets the next one of its columns, for which its warp reads them.

namespace pagemill::gpu {
namespace {

constexpr int kThreads = 1024;
// Exponentials are whole numbers, this one's units, so that their sum has no order. Rows of 2^23
// columns have one below 2^63.
constexpr float kOne = 0x1p40f;

constexpr int kRank = offsetof(ops::TokenScores, rank) / sizeof(int32_t);
constexpr int kTopIds = offsetof(ops::TokenScores, top_ids) / sizeof(int32_t);
constexpr int kTopLogprobs = offsetof(ops::TokenScores, top_logprobs) / sizeof(int32_t);

// The best of columns begin, begin + step, ... that comes behind `last`.
PAGEMILL_DEVICE Found NextBehind(Found last, const float* row, int64_t begin, int64_t end,
                                 int step) {
  Found next = {-INFINITY, -1};
  ForColumns(row, begin, end, step, [&](int64_t i, float value) {
    const auto column = static_cast<int32_t>(i);
    const bool behind = value < last.value || (value == last.value && column > last.column);
    if (behind) next = Better(next, {value, column});
  });
  return next;
}

PAGEMILL_DEVICE void AddOfWarp(uint64_t value, uint64_t* sum) {
  for (int bits = WarpLanes() / 2; bits > 0; bits /= 2) {
    value += ShuffleXor(AllLanes(), value, bits);
  }
  if (Lane() == 0) AtomicAdd(sum, value);
}

PAGEMILL_KERNEL_OF(kThreads, 1)
ScoreRow(Rows<const float> x, Rows<const float> copies, const int32_t* columns,
         Rows<const int32_t> scored, Rows<int32_t> y, int64_t size) {
  PAGEMILL_SHARED(uint64_t, weight);
  PAGEMILL_SHARED(uint64_t, above);
  const auto thread = static_cast<int32_t>(ThreadIndex().x);
  const int32_t* const words = scored[BlockIndex().x];
  const ops::ScoredRow of = {words[0], words[1], words[2], words[3]};
  const float* const row = of.copy < 0 ? x[of.row] : copies[of.copy];
  const int32_t token = of.token_id < 0 ? columns[of.row] : of.token_id;
  const float logit = token < 0 ? -INFINITY : row[token];
  if (thread == 0) weight = above = 0;

  Found own = {-INFINITY, -1};
  ForColumns(row, thread, size, kThreads, [&](int64_t column, float value) {
    if (value == value) own = Better(own, {value, static_cast<int32_t>(column)});
  });
  const Found largest = BestOfBlock<kThreads>(own);
  uint64_t own_weight = 0, own_above = 0;
  ForColumns(row, thread, size, kThreads, [&](int64_t, float value) {
    const float e = Exp(value - largest.value);
    if (e > 0) own_weight += static_cast<uint64_t>(e * kOne);
    own_above += value > logit ? 1 : 0;
  });
  AddOfWarp(own_weight, &weight);
  AddOfWarp(own_above, &above);
  SyncBlock();

  const float log_of_sum = logf(static_cast<float>(weight) / kOne);
  const auto logprob_bits = [&](float value) {
    return static_cast<int32_t>(FloatToBits((value - largest.value) - log_of_sum));
  };
  int32_t* const out = y[BlockIndex().x];
  if (thread == 0) {
    out[0] = logprob_bits(logit);
    out[kRank] = 1 + static_cast<int32_t>(above);
  }
  const int64_t num_top = of.num_top < size ? of.num_top : size;
  for (int n = 0; n < num_top; ++n) {
    const Found found = BestOfBlock<kThreads>(own);
    if (thread == 0) {
      out[kTopIds + n] = found.column;
      out[kTopLogprobs + n] = logprob_bits(found.value);
    }
    if (found.column < 0) return;  // the others are NaN
    const int owner = found.column % kThreads;
    if (Warp() != owner / WarpLanes()) continue;
    const Found next = BestOfWarp(NextBehind(found, row, owner + Lane() * kThreads, size,
                                             WarpLanes() * kThreads));
    if (thread == owner) own = next;
  }
}

bool Supports(const device::Capabilities& caps, const ops::OpCall& call) {
  return OnEveryGpu(caps, call) && call.inputs[0].shape[1] <= int64_t{1} << 23;
}

void Run(const ops::OpCall& call, ops::KernelContext& context) {
  const TensorView& x = call.inputs[0];
  const TensorView& scored = call.inputs[3];
  Launch(*context.stream,
         {.blocks = {static_cast<uint32_t>(scored.shape[0])}, .threads = {kThreads}}, ScoreRow,
         RowsOf<const float>(x), RowsOf<const float>(call.inputs[1]),
         call.inputs[2].Data<const int32_t>(), RowsOf<const int32_t>(scored),
         RowsOf<int32_t>(call.outputs[0]), x.shape[1]);
}

constexpr ops::Kernel kKernels[] = {{"score_tokens", "gpu", 10, Supports, Run}};

}  // namespace

std::span<const ops::Kernel> ScoreTokensKernels() { return kKernels; }

}  // namespace pagemill::gpu
