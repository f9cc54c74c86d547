// `merge_attention` a head at a time.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "cc/ops/exp.h"
#include "cc/ops/merge_attention/merge_attention.h"
#include "cc/ops/row_split.h"

namespace pagemill::ops::merge_attention {
namespace {

// What the result of each set is multiplied with, for one head of one token.
struct Shares {
  float of[kMaxSets] = {};
};

Shares SharesOf(const Args& args, int64_t token, int64_t head) {
  float lse[kMaxSets], largest = args.sinks == nullptr ? -INFINITY : args.sinks[head];
  for (size_t s = 0; s < args.sets; ++s) {
    lse[s] = args.lse[s].Row<const float>(token)[head];
    largest = lse[s] > largest || std::isnan(lse[s]) ? lse[s] : largest;
  }
  Shares shares;
  if (largest == -INFINITY) return shares;
  if (!std::isfinite(largest)) {
    std::fill_n(shares.of, kMaxSets, NAN);
    return shares;
  }
  float sum = args.sinks == nullptr ? 0 : Exp(args.sinks[head] - largest);
  for (size_t s = 0; s < args.sets; ++s) {
    shares.of[s] = Exp(lse[s] - largest);
    sum += shares.of[s];
  }
  for (size_t s = 0; s < args.sets; ++s) shares.of[s] /= sum;
  return shares;
}

}  // namespace

void RunPortable(const OpCall& call, KernelContext& context) {
  const Args args = ToArgs(call);
  const int64_t heads = args.heads(), size = args.size();
  context.pool->ParallelFor(
      args.y.shape[0] * heads, RowsPerChunk(size), [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t token = i / heads, head = i % heads;
          const Shares shares = SharesOf(args, token, head);
          const auto at = [&](size_t s) {
            return args.x[s].Row<const float>(token) + head * size;
          };
          const float* const first = at(0);
          const float* const second = at(args.sets - 1);  // its share is 0 if there is one set
          float* const y = args.y.Row<float>(token) + head * size;
          for (int64_t d = 0; d < size; ++d) {
            y[d] = shares.of[0] * first[d] + shares.of[1] * second[d];
          }
        }
      });
}

}  // namespace pagemill::ops::merge_attention
