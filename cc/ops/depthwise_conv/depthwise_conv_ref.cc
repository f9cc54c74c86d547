// The reference of `depthwise_conv`, element by element.
#include <cstddef>
#include <vector>

#include "cc/ops/depthwise_conv/depthwise_conv.h"

namespace pagemill::ops {

void DepthwiseConvReference(const OpCall& call, KernelContext&) {
  std::vector<std::byte> plan(static_cast<size_t>(kDepthwiseRowsPlan.bytes(call)));
  kDepthwiseRowsPlan.make(call, plan);
  const DepthwiseConvArgs args = ToDepthwiseConvArgs(call, plan.data());
  for (int64_t i = 0; i < args.tokens * args.results; ++i) {
    const int64_t t = i / args.results, j = i % args.results;
    for (int64_t c = 0; c < args.channels; ++c) {
      double sum = args.bias.rank > 0 ? args.bias.Data<const float>()[c] : 0;
      for (int64_t k = 0; k < args.taps; ++k) {
        const int64_t from = args.listed[(args.is_indexed ? j : t) * args.taps + k];
        if (from < 0 || (args.is_indexed && from >= args.positions)) continue;
        const float x = args.is_indexed ? args.x.Row<const float>(t)[from * args.channels + c]
                                        : args.x.Row<const float>(from)[c];
        sum += static_cast<double>(args.w.Row<const float>(c)[k]) * x;
      }
      args.y.Row<float>(t)[j * args.channels + c] = static_cast<float>(sum);
    }
  }
}

}  // namespace pagemill::ops
