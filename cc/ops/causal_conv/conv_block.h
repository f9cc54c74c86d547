// File: cc/ops/causal_conv/conv_block.h
// Blocks of channels of `causal_conv` and `depthwise_conv`: a thread computes the channels of one
// together, so that their taps and the rows that results share stay in the first-level cache.
#ifndef PAGEMILL_CC_OPS_CAUSAL_CONV_CONV_BLOCK_H_
#define PAGEMILL_CC_OPS_CAUSAL_CONV_CONV_BLOCK_H_

#include <algorithm>
#include <cstdint>

#include "cc/ops/causal_conv/conv_row.h"
#include "cc/ops/op.h"
#include "cc/ops/row_split.h"

namespace pagemill::ops {

inline constexpr int64_t kConvBlock = 128;  // channels
inline constexpr float kConvZeros[kConvBlock] = {};

// `size` channels from `first` on of a convolution with at most kMaxTaps taps, args.w [channels,
// args.taps] and args.bias [channels], if there is one.
template <int64_t kMaxTaps>
class ConvBlock {
 public:
  template <typename Args>
  ConvBlock(const Args& args, int64_t first, int64_t size)
      : first(first),
        size(size),
        taps_(args.taps),
        bias_(args.bias.rank > 0 ? args.bias.template Data<const float>() + first : kConvZeros) {
    for (int64_t c = 0; c < size; ++c) {
      const float* const w = args.w.template Row<const float>(first + c);
      for (int64_t k = 0; k < taps_; ++k) w_[k * kConvBlock + c] = w[k];
    }
  }

  // y = kind(the taps times source(tap)); both begin at channel `first`.
  template <ConvRowFunction kRow, typename Source>
  void Convolve(const Source& source, float* y, ActivationKind kind) const {
    const float* x[kMaxTaps];
    for (int64_t k = 0; k < taps_; ++k) x[k] = source(k);
    kRow({.x = x,
          .w = w_,
          .bias = bias_,
          .y = y,
          .taps = taps_,
          .w_stride = kConvBlock,
          .size = size,
          .kind = kind});
  }

  const int64_t first;
  const int64_t size;

 private:
  const int64_t taps_;
  const float* const bias_;
  float w_[kMaxTaps * kConvBlock];  // [taps, kConvBlock]
};

// visit(item, block) for each of `items` and each block of channels, on the threads of `context`.
// The blocks of an item are adjacent; an item has about `rows` rows.
template <int64_t kMaxTaps, typename Args, typename Visit>
void ForEachConvBlock(const Args& args, int64_t items, int64_t rows, KernelContext& context,
                      const Visit& visit) {
  const int64_t blocks = (args.channels + kConvBlock - 1) / kConvBlock;
  context.pool->ParallelFor(
      items * blocks, RowsPerChunk(rows * kConvBlock * args.taps),
      [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t first = i % blocks * kConvBlock;
          visit(i / blocks,
                ConvBlock<kMaxTaps>(args, first, std::min(kConvBlock, args.channels - first)));
        }
      });
}

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_CAUSAL_CONV_CONV_BLOCK_H_
