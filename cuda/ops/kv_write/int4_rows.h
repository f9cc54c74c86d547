// File: cuda/ops/kv_write/int4_rows.h
// Rows of int4 of a paged cache (cc/ops/kv_write/int4_row.h), for kernels that store and read them.
//
//   RotateTogether(row, head_dim, Lane(), WarpLanes(), [] { SyncWarp(AllLanes()); });
#ifndef PAGEMILL_CUDA_OPS_KV_WRITE_INT4_ROWS_H_
#define PAGEMILL_CUDA_OPS_KV_WRITE_INT4_ROWS_H_

#include <cstdint>

#include "cc/ops/kv_write/int4_layout.h"
#include "cuda/gpu_vendor.h"

namespace pagemill::gpu {

constexpr int64_t Int4RowBytes(int64_t head_dim) { return (head_dim + 7) / 8 * 4; }

// The offset of the int4 values in a block, which end where its scales begin.
template <typename Params>
PAGEMILL_DEVICE int64_t Int4ValuesOffset(const Params& p) {
  return p.scales_offset - p.kv_heads * p.block_size * Int4RowBytes(p.head_dim);
}

// x [dims] = H x with the bits of RotateRow(), by `threads` threads, of which the caller is number
// `thread`. sync() lets each see what all have stored; it is the first and the last call.
template <typename Sync>
PAGEMILL_DEVICE void RotateTogether(float* x, int dims, int thread, int threads, const Sync& sync) {
  sync();
  for (int half = 1; half < ops::Int4Rotation(dims); half *= 2) {
    for (int i = thread; i < dims / 2; i += threads) {
      float* const pair = x + i + (i & -half);  // pairs [0, half), then [2 half, 3 half), ...
      const float sum = pair[0] + pair[half], difference = pair[0] - pair[half];
      pair[0] = sum;
      pair[half] = difference;
    }
    sync();
  }
}

// The number that the code at bit `shift` of a word stands for, in scales: 2 code - 15, made from
// the lowest bits of 2^23 + 2 code, since whole numbers are slow to convert.
PAGEMILL_DEVICE float Int4At(uint32_t word, int shift) {
  const uint32_t twice = (shift == 0 ? word << 1 : word >> (shift - 1)) & 30;
  return BitsToFloat(0x4b000000u | twice) - (0x1p23f + 15);
}

// The product of q [head_dim], which is rotated and has zeros behind it up to a multiple of 8
// elements, and the key at `offset`, without its scale; `keys` are those of a head in a block.
PAGEMILL_DEVICE float Int4Product(const float* q, int head_dim, const uint8_t* keys, int offset,
                                  int block_size) {
  float sums[4] = {};
  for (int d = 0; d < head_dim; d += 8) {
    const uint32_t codes = *reinterpret_cast<const uint32_t*>(
        keys + ops::Int4KeyOffset(ops::Int4Byte(d), offset, block_size));
    for (int i = 0; i < 4; ++i) {
      sums[i] += q[d + i] * Int4At(codes, 8 * i);
      sums[i] += q[d + 4 + i] * Int4At(codes, 8 * i + 4);
    }
  }
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// `sum` and element `d` of four values, times a share of each; `values` are those of whole fours of
// tokens of a head, from these four on.
PAGEMILL_DEVICE float AddInt4Products(float sum, const uint8_t* values, int d,
                                      const float* shares) {
  uint32_t codes = *reinterpret_cast<const uint32_t*>(values + ops::Int4Byte(d) * 4);
  if (ops::IsInt4High(d)) codes >>= 4;
  for (int token = 0; token < 4; ++token) sum += shares[token] * Int4At(codes, 8 * token);
  return sum;
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_KV_WRITE_INT4_ROWS_H_
