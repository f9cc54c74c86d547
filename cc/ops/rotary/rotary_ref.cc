#include <cmath>

#include "cc/ops/rotary/rotary.h"

namespace pagemill::ops {
namespace {

void RotateToken(const RotaryArgs& args, const TensorView& source, const TensorView& target,
                 int64_t t) {
  const int64_t head_dim = source.shape[2];
  const RotaryFrequencies frequencies = FrequenciesOf(args);
  const int64_t pairs = frequencies.pairs;
  const int32_t* position = args.positions.Row<int32_t>(t);
  for (int64_t h = 0; h < source.shape[1]; ++h) {
    const float* x = source.Row<float>(t) + h * head_dim + args.begin;
    float* y = target.Row<float>(t) + h * head_dim + args.begin;
    for (int64_t i = 0; i < pairs; ++i) {
      float angle = 0;
      for (int64_t d = 0; d < frequencies.dims; ++d) {
        angle +=
            static_cast<float>(position[d] + args.offset) *
            frequencies.inv_freq[d * frequencies.dim_stride + i];
      }
      const double c = std::cos(static_cast<double>(angle)) * args.mscale;
      const double s = std::sin(static_cast<double>(angle)) * args.mscale;
      const int64_t first = args.interleaved ? 2 * i : i;
      const int64_t second = args.interleaved ? 2 * i + 1 : i + pairs;
      const double a = x[first];
      const double b = x[second];
      y[first] = static_cast<float>(a * c - b * s);
      y[second] = static_cast<float>(b * c + a * s);
    }
    for (int64_t i = -args.begin; i < 0; ++i) y[i] = x[i];
    for (int64_t i = 2 * pairs; i < head_dim - args.begin; ++i) y[i] = x[i];
  }
}

}  // namespace

void RotaryReference(const OpCall& call, KernelContext&) {
  const RotaryArgs args = ToRotaryArgs(call);
  for (int64_t t = 0; t < args.q.shape[0]; ++t) {
    RotateToken(args, args.q, args.q_out, t);
    RotateToken(args, args.k, args.k_out, t);
  }
}

}  // namespace pagemill::ops
