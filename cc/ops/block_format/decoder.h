// File: cc/ops/block_format/decoder.h
// Interface of the decoders (decoder_avx2.h, decoder_avx512.h). A decoder of a weight dtype to
// registers of kLanes floats has
//
//   State; Begin(block, &state)       // values that all parts of a block need
//   Decode(state, part, w)            // kVectors registers: elements of part 0 .. kParts - 1
//   DecodePartial(from, count)        // if kRowsMayEndInside: the first `count` elements and
//                                     // zeros, reading no others
#ifndef PAGEMILL_CC_OPS_BLOCK_FORMAT_DECODER_H_
#define PAGEMILL_CC_OPS_BLOCK_FORMAT_DECODER_H_

#include <cstdint>

#include "cc/ops/block_format/block_layout.h"
#include "cc/tensor/dtype.h"

namespace pagemill::ops {

// Constants of a block format, which is decoded in parts of 32 elements.
template <DType kDType, int kLanes>
struct DecoderSizes {
  static constexpr int kElements = LayoutOf(kDType).elements;
  static constexpr int kBytes = LayoutOf(kDType).bytes;
  static constexpr int kParts = kElements / 32;
  static constexpr int kVectors = 32 / kLanes;
  static constexpr bool kRowsMayEndInside = false;
};

// f32, bf16, f16: a "block" is one register, and rows may end inside it.
template <DType kDType, int kLanes>
struct PlainDecoder {
  static constexpr int kElements = kLanes;
  static constexpr int kBytes = kLanes * LayoutOf(kDType).bytes;
  static constexpr int kParts = 1;
  static constexpr int kVectors = 1;
  static constexpr bool kRowsMayEndInside = true;
  struct State {
    const uint8_t* elements;
  };
  [[gnu::always_inline]] static inline void Begin(const uint8_t* block, State* state) {
    state->elements = block;
  }
};

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_BLOCK_FORMAT_DECODER_H_
