// File: cc/ops/kv_write/int4_row.h
// A row of an int4 cache: the key or the value of one head and token, of D elements.
//
// The row is multiplied by a Walsh-Hadamard matrix H, which spreads elements that are much larger
// than the others (docs/decisions/0145-rows-of-four-bits-are-rotated.md): x' = H x / B, where B is
// the largest power of two that divides D, for each B elements. A code n from 0 to 15 stands for
// (2 n - 15) scale, with scale = largest |x'| / 15.
//
// Four bytes hold 8 elements: byte j the codes of elements j (its low half) and j + 4. The bytes of
// a head's keys in a block are [row_bytes / 4, block_size, 4], so that 16 keys are a register of
// products of 4 dimensions; those of its values [block_size / 4, row_bytes, 4 tokens], for products
// of 4 keys. So a block has whole fours of tokens.
//
// Since H H = B, attention needs no row turned back: q k = (H q) k', and sums of v' times H are
// those of v. So its queries and its results are rotated instead.
//
//   RotateRow(q, head_dim, 1.0f);
//
// Plain functions only: files compiled for wide instructions include this header (docs/build.md).
#ifndef PAGEMILL_CC_OPS_KV_WRITE_INT4_ROW_H_
#define PAGEMILL_CC_OPS_KV_WRITE_INT4_ROW_H_

#include <cstdint>

#include "cc/ops/kv_write/int4_layout.h"

namespace pagemill::ops {
namespace {

// Two codes.
enum class Int4Pair : uint8_t {};

// The first two steps of a transform of whole fours: sums and differences at distances 1 and 2.
template <typename T>
inline void RotateFours(T* x, int dims) {
  using Four __attribute__((vector_size(4 * sizeof(T)))) = T;
  const Four of_pairs = {1, -1, 1, -1}, of_fours = {1, 1, -1, -1};
  for (int i = 0; i < dims; i += 4) {
    Four v;
    __builtin_memcpy(&v, x + i, sizeof(v));
    v = v * of_pairs + __builtin_shufflevector(v, v, 1, 0, 3, 2);
    v = v * of_fours + __builtin_shufflevector(v, v, 2, 3, 0, 1);
    __builtin_memcpy(x + i, &v, sizeof(v));
  }
}

// The step of distance `half`, a multiple of kAtOnce.
template <int kAtOnce, typename T>
inline void RotateHalves(T* x, int dims, int half) {
  for (int first = 0; first < dims; first += kAtOnce) {
    if ((first & half) != 0) continue;
    T* const a = x + first;
    T* const b = a + half;
    for (int i = 0; i < kAtOnce; ++i) {
      const T sum = a[i] + b[i], difference = a[i] - b[i];
      a[i] = sum;
      b[i] = difference;
    }
  }
}

// x[0, dims) = H x factor, with the same bits on every CPU: only sums are rounded, in one order, if
// the factor is a power of two.
template <typename T>
inline void RotateRow(T* x, int dims, T factor) {
  const int block = Int4Rotation(dims);
  for (int i = 0; i < dims; ++i) x[i] *= factor;
  if (block == 2) return RotateHalves<1>(x, dims, 1);
  if (block >= 4) RotateFours(x, dims);
  for (int half = 4; half < block && half < 16; half *= 2) RotateHalves<4>(x, dims, half);
  for (int half = 16; half < block; half *= 2) RotateHalves<16>(x, dims, half);
}

}  // namespace
}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_KV_WRITE_INT4_ROW_H_
