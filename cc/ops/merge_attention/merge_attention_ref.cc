// The reference of `merge_attention`.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "cc/ops/merge_attention/merge_attention.h"

namespace pagemill::ops::merge_attention {
namespace {

void MergeHead(const Args& args, int64_t token, int64_t head) {
  const int64_t size = args.size();
  double largest =
      args.sinks == nullptr ? -std::numeric_limits<double>::infinity() : args.sinks[head];
  for (size_t s = 0; s < args.sets; ++s) {
    largest = std::max<double>(largest, args.lse[s].Row<const float>(token)[head]);
  }
  const bool empty = std::isinf(largest) && largest < 0;
  double weights[kMaxSets] = {}, sum = args.sinks == nullptr || empty
                                           ? 0
                                           : std::exp(double{args.sinks[head]} - largest);
  for (size_t s = 0; s < args.sets && !empty; ++s) {
    weights[s] = std::exp(double{args.lse[s].Row<const float>(token)[head]} - largest);
    sum += weights[s];
  }
  for (int64_t d = 0; d < size; ++d) {
    double value = 0;
    for (size_t s = 0; s < args.sets && !empty; ++s) {
      value += weights[s] / sum * args.x[s].Row<const float>(token)[head * size + d];
    }
    args.y.Row<float>(token)[head * size + d] = static_cast<float>(value);
  }
}

}  // namespace

void RunReference(const OpCall& call, KernelContext&) {
  const Args args = ToArgs(call);
  for (int64_t token = 0; token < args.y.shape[0]; ++token) {
    for (int64_t head = 0; head < args.heads(); ++head) MergeHead(args, token, head);
  }
}

}  // namespace pagemill::ops::merge_attention
