// File: cc/ops/paged_attention/attention_int4_inl.h
// Decodes int4 keys and values of a chunk (cc/ops/kv_write/int4_row.h) to int8 in scratch, for the
// kernels over `Vec`, which then attend to it as to a chunk of int8.
#ifndef PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_INT4_INL_H_
#define PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_INT4_INL_H_

#include "cc/ops/paged_attention/attention_chunk_inl.h"

namespace pagemill::ops {
namespace {

using SixteenBytes = uint8_t __attribute__((vector_size(16)));
using FourWords = uint32_t __attribute__((vector_size(16)));

// The numbers of 4 x 4 codes, transposed: those in the low halves of 16 bytes (shift = 0), or in
// the high ones (4). A word holds four numbers.
inline FourWords DecodeSquare(const Int4Pair* pairs, int shift) {
  SixteenBytes codes;
  __builtin_memcpy(&codes, pairs, sizeof(codes));
  const SixteenBytes numbers = (codes >> shift & 15) * 2 - 15;
  return (FourWords)__builtin_shufflevector(numbers, numbers, 0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10,
                                            14, 3, 7, 11, 15);
}

// Four dimensions of 16 keys, [4, 16], from squares of four keys each.
inline void StoreKeyRows(const FourWords* squares, int8_t* to) {
  const auto store = [to](int row, FourWords words) {
    __builtin_memcpy(to + row * kAttentionKeyGroup, &words, sizeof(words));
  };
  for (int half = 0; half < 2; ++half) {
    const auto pair = [half](FourWords a, FourWords b) {
      return half == 0 ? __builtin_shufflevector(a, b, 0, 4, 1, 5)
                       : __builtin_shufflevector(a, b, 2, 6, 3, 7);
    };
    const FourWords left = pair(squares[0], squares[1]), right = pair(squares[2], squares[3]);
    store(2 * half, __builtin_shufflevector(left, right, 0, 1, 4, 5));
    store(2 * half + 1, __builtin_shufflevector(left, right, 2, 3, 6, 7));
  }
}

// 16 keys: [2 key_size, 16].
inline void DecodeKeys(const AttentionShape& shape, const Int4Pair* keys, int8_t* to) {
  for (int byte = 0; byte < shape.key_size; byte += 4) {
    const Int4Pair* const pairs = keys + Int4KeyOffset(byte, 0, shape.block_size);
    for (int shift = 0; shift <= 4; shift += 4, to += 4 * kAttentionKeyGroup) {
      FourWords squares[4];
      for (int i = 0; i < 4; ++i) squares[i] = DecodeSquare(pairs + 16 * i, shift);
      StoreKeyRows(squares, to);
    }
  }
}

// 16 values: [16, 2 value_size].
inline void DecodeValues(const AttentionShape& shape, const Int4Pair* values, int8_t* to) {
  const int64_t stride = 2 * shape.value_size;
  for (int key = 0; key < kAttentionKeyGroup; key += 4) {
    for (int byte = 0; byte < shape.value_size; byte += 4) {
      const Int4Pair* const pairs = values + Int4ValueOffset(byte, key, shape.value_size);
      const FourWords low = DecodeSquare(pairs, 0), high = DecodeSquare(pairs, 4);
      const FourWords rows[2] = {__builtin_shufflevector(low, high, 0, 4, 1, 5),
                                 __builtin_shufflevector(low, high, 2, 6, 3, 7)};
      for (int i = 0; i < 4; ++i) {
        __builtin_memcpy(to + (key + i) * stride + 2 * byte,
                         reinterpret_cast<const char*>(rows) + 8 * i, 8);
      }
    }
  }
}

// Decodes groups [first, last) of `side` to `to`, `bytes` each, with decode(shape, from, to).
inline ChunkSide<int8_t> DecodeSide(const AttentionShape& shape, const ChunkSide<Int4Pair>& side,
                                    int first, int last, int64_t bytes, int8_t* to,
                                    void (*decode)(const AttentionShape&, const Int4Pair*,
                                                   int8_t*)) {
  ChunkSide<int8_t> decoded = {};
  for (int g = first; g < last; ++g, to += bytes) {
    decode(shape, side.at[g], to);
    decoded.at[g] = to;
    decoded.scales[g] = side.scales[g];
  }
  return decoded;
}

// A chunk of int8, and the shape in which it lies.
struct DecodedChunk {
  AttentionShape shape;
  Chunk<int8_t, int8_t> chunk;
};

// Groups [first, last): keys of int4 in scratch, as blocks of 16 keys; values of int4 in scratch;
// others where they are.
template <typename Key, typename Value>
inline DecodedChunk DecodeChunk(const AttentionShape& shape, const Chunk<Key, Value>& chunk,
                                int first, int last, const AttentionScratch& scratch) {
  DecodedChunk decoded{.shape = shape, .chunk = {}};
  int8_t* to = reinterpret_cast<int8_t*>(scratch.pages);
  if constexpr (kIsInt4<Key>) {
    const int64_t bytes = int64_t{2} * shape.key_size * kAttentionKeyGroup;
    decoded.chunk.keys = DecodeSide(shape, chunk.keys, first, last, bytes, to, DecodeKeys);
    decoded.shape.block_size = kAttentionKeyGroup;
    to += kGroupsPerChunk * bytes;
  } else {
    decoded.chunk.keys = chunk.keys;
  }
  if constexpr (kIsInt4<Value>) {
    decoded.shape.value_size = 2 * shape.value_size;
    const int64_t bytes = int64_t{decoded.shape.value_size} * kAttentionKeyGroup;
    decoded.chunk.values = DecodeSide(shape, chunk.values, first, last, bytes, to, DecodeValues);
  } else {
    decoded.chunk.values = chunk.values;
  }
  return decoded;
}

}  // namespace
}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_PAGED_ATTENTION_ATTENTION_INT4_INL_H_
