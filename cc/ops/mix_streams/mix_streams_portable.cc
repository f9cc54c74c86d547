// `mix_streams` in blocks of columns: a block of all streams stays in L1 for all mixes.
#include <algorithm>
#include <cstdint>

#include "cc/ops/mix_streams/mix_streams.h"
#include "cc/ops/row_split.h"

namespace pagemill::ops::mix_streams {
namespace {

constexpr int64_t kColumns = 32;

// z = weights[0] x[0] + weights[1] x[step] + ..., then y, in `count` columns.
void MixColumns(const Args& args, const float* x, const float* y, const float* weights,
                int64_t count, float* z) {
  float sums[kColumns] = {};
  for (int64_t n = 0; n < args.streams; ++n) {
    const float* const stream = x + n * args.width;
    for (int64_t i = 0; i < count; ++i) sums[i] += weights[n] * stream[i];
  }
  if (y != nullptr) {
    for (int64_t i = 0; i < count; ++i) sums[i] += weights[args.streams] * y[i];
  }
  std::copy_n(sums, count, z);
}

}  // namespace

void RunPortable(const OpCall& call, KernelContext& context) {
  const Args args = ToArgs(call);
  const int64_t blocks = (args.width + kColumns - 1) / kColumns, step = args.weights_of_mix();
  const int64_t grain = RowsPerChunk(kColumns * step * args.mixes);
  // Blocks of columns of all tokens are one list, so threads share even a single token.
  context.pool->ParallelFor(
      args.z.shape[0] * blocks, grain, [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t token = i / blocks, column = i % blocks * kColumns;
          const float* const x = args.x.Row<const float>(token) + column;
          const float* const y =
              args.y.rank > 0 ? args.y.Row<const float>(token) + column : nullptr;
          const float* const weights = args.weights.Row<const float>(token);
          float* const z = args.z.Row<float>(token) + column;
          const int64_t count = std::min(kColumns, args.width - column);
          for (int64_t m = 0; m < args.mixes; ++m) {
            MixColumns(args, x, y, weights + m * step, count, z + m * args.width);
          }
        }
      });
}

}  // namespace pagemill::ops::mix_streams
