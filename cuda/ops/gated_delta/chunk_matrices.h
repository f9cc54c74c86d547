// File: cuda/ops/gated_delta/chunk_matrices.h
// What a chunk of tokens of a head is to its state, whatever the state is: two matrices, lower
// triangular, and factors of tokens. One warp makes those of keys, and one those of queries.
//
// With g_i the logarithm of all decays up to token i of the chunk, and q, k normalized, the changes
// u_i of a token (its share times what it adds to k_i) and its results y_i are
//
//   u   = solve (v_j - e^(g_j) S^T k_j)    solve = (I + A)^-1 diag(share)
//   y_i = e^(g_i) S^T q_i + attend u       attend_ij = q_i^T k_j e^(g_i - g_j), for j <= i
//
// for the state S before the chunk, where A_ij = share_i k_i^T k_j e^(g_i - g_j) for j < i. S is
// then e^(g of the last) S + sum of k_j e^(g of the last - g_j) u_j^T.
//
// Rows of k lie in shared memory as they are, without their norms, which are factors beside the
// products: so both factors of k_i^T k_j and q_i^T k_j are exact.
#ifndef PAGEMILL_CUDA_OPS_GATED_DELTA_CHUNK_MATRICES_H_
#define PAGEMILL_CUDA_OPS_GATED_DELTA_CHUNK_MATRICES_H_

#include <cmath>
#include <cstdint>

#include "cc/ops/gated_delta/gated_delta.h"
#include "cuda/gpu_math.h"
#include "cuda/gpu_vendor.h"
#include "cuda/ops/attention/pieces.h"
#include "cuda/ops/gated_delta/split_pairs.h"

namespace pagemill::gpu {

inline constexpr int kDeltaChunk = 32;  // tokens: one for each lane
inline constexpr int kMostDeltaKeys = 128;
inline constexpr int kDeltaColumns = 32;  // of v, of a block

// Keys come in as many at once, without a branch between their products: what the last of them
// lack is zeros.
inline constexpr int kKeysAtOnce = 64;

// Calls visit(key) for the first of each 16 keys.
template <typename Visit>
PAGEMILL_DEVICE void ForEachKeys(int keys, const Visit& visit) {
  PAGEMILL_UNROLL
  for (int first = 0; first < kMostDeltaKeys; first += kKeysAtOnce) {
    if (first >= keys) break;
    PAGEMILL_UNROLL
    for (int key = first; key < first + kKeysAtOnce; key += 16) visit(key);
  }
}

// Tokens that a chunk does not have are zeros.
struct alignas(16) DeltaRows {
  BFloat16 k[kDeltaChunk][kMostDeltaKeys + kRowPadding];
  BFloat16 q[kDeltaChunk][kMostDeltaKeys + kRowPadding];
  BFloat16 v[kDeltaChunk][kDeltaColumns + kRowPadding];
};

// A lower triangular matrix of a chunk as the sum of two of bf16, in whole squares of 16 x 16.
struct alignas(16) LowerMatrix {
  BFloat16 high[kDeltaChunk][kDeltaChunk + kRowPadding];
  BFloat16 low[kDeltaChunk][kDeltaChunk + kRowPadding];
};

struct ChunkMatrices {
  LowerMatrix solve;
  LowerMatrix attend;              // without the norms of k
  float key_norms[kDeltaChunk];    // 1 / |k|
  float key_factors[kDeltaChunk];  // e^(g_i) / |k|
  float query_factors[kDeltaChunk];  // e^(g_i) / |q| / sqrt(K)
  float kept[kDeltaChunk];           // e^(g of the last - g_i)
  float kept_of_state;               // e^(g of the last)
};

// What a lane knows of its token.
struct Gate {
  float decay;  // its logarithm: 0 without a token
  float share;  // 0 without a token
};

// e^-128 is 0 in f32: sums of logarithms stay finite, and products are the same.
inline constexpr float kLeastDecay = -128;

PAGEMILL_DEVICE Gate GateOf(float a, float b, float rate, float bias, float share_scale) {
  const float decay = rate * Softplus(a + bias);
  return {decay < kLeastDecay ? kLeastDecay : decay, share_scale / (1 + Exp(-b))};
}

// A sum of logarithms of decays. Those up to two tokens may be large, and what lies between them
// small: `rest` is what rounding `sum` left.
struct Decay {
  float sum, rest;

  PAGEMILL_DEVICE float LogSince(const Decay& other) const {
    return (sum - other.sum) + (rest - other.rest);
  }
  PAGEMILL_DEVICE float Since(const Decay& other) const { return Exp(LogSince(other)); }
};

namespace internal {

// A square block of 16 rows and 8 columns that has elements on or below the diagonal.
struct LowerBlock {
  int rows, columns;  // numbers of the first ones
};
inline constexpr int kLowerBlocks = 6;
PAGEMILL_DEVICE LowerBlock BlockAt(int i) {
  return i < 2 ? LowerBlock{0, 8 * i} : LowerBlock{16, 8 * (i - 2)};
}

// 16 keys of a chunk's 32 rows, as the left operand of a product; as the right one, rows are
// columns.
struct RowFragments {
  uint32_t a[2][4];

  PAGEMILL_DEVICE RowFragments(const BFloat16 (*rows)[kMostDeltaKeys + kRowPadding], int key) {
    const BFloat16* const at = &rows[Lane() / 4][key + Lane() % 4 * 2];
    PAGEMILL_UNROLL
    for (int i = 0; i < 8; ++i) {
      a[i / 4][i % 4] = PairAt(at + (i / 4 * 16 + i % 2 * 8) * (kMostDeltaKeys + kRowPadding) +
                               i % 4 / 2 * 8);
    }
  }
  PAGEMILL_DEVICE void Multiply(int rows, const RowFragments& columns, int n,
                                float (&sums)[4]) const {
    const uint32_t(&b)[4] = columns.a[n / 2];
    Mma16x8x16(sums, a[rows / 16], {b[n % 2], b[n % 2 + 2]});
  }
};

// The element on the diagonal of row 8 * n + g, of a block that begins at row 8 * n or eight before
// it, and at column 8 * n. One lane of four has it.
PAGEMILL_DEVICE bool HasDiagonal() { return Lane() % 4 == Lane() / 8; }
PAGEMILL_DEVICE float Diagonal(const float (&sums)[4], int n) {
  return Lane() / 4 % 2 == 0 ? sums[n % 2 * 2] : sums[n % 2 * 2 + 1];
}

// The sum of what the lanes up to this one have.
PAGEMILL_DEVICE Decay SumUpTo(float decay) {
  Decay own = {decay, 0};
  for (int lanes = 1; lanes < kDeltaChunk; lanes *= 2) {
    const int from = Lane() < lanes ? Lane() : Lane() - lanes;
    const Decay before = {Shuffle(AllLanes(), own.sum, from), Shuffle(AllLanes(), own.rest, from)};
    if (Lane() < lanes) continue;
    const float sum = own.sum + before.sum, added = sum - own.sum;
    const float rounded = (own.sum - (sum - added)) + (before.sum - added);
    own = {sum, own.rest + before.rest + rounded};
  }
  return own;
}

}  // namespace internal

namespace internal {

// A token as lanes hand it to each other.
struct alignas(16) ChunkToken {
  Decay decay;   // g_i
  float norm;    // 1 / |k_i|, or 1 / |q_i| / sqrt(K)
  float factor;  // share_i
};

// The tokens of the lane's rows and columns of blocks.
class TokensOfBlocks {
 public:
  PAGEMILL_DEVICE explicit TokensOfBlocks(const ChunkToken* tokens) {
    PAGEMILL_UNROLL
    for (int i = 0; i < 4; ++i) rows_[i] = tokens[8 * i + Lane() / 4];
    PAGEMILL_UNROLL
    for (int i = 0; i < 8; ++i) columns_[i] = tokens[i / 2 * 8 + Lane() % 4 * 2 + i % 2];
  }
  // Of element `e` of a block.
  PAGEMILL_DEVICE const ChunkToken& Row(const LowerBlock& block, int e) const {
    return rows_[block.rows / 8 + e / 2];
  }
  PAGEMILL_DEVICE const ChunkToken& Column(const LowerBlock& block, int e) const {
    return columns_[block.columns / 4 + e % 2];
  }

 private:
  ChunkToken rows_[4], columns_[8];
};

}  // namespace internal

// What the warp that calls MakeKeyMatrices() hands from lane to lane.
struct KeyScratch {
  internal::ChunkToken tokens[kDeltaChunk];
  // Of both squares of A on the diagonal: column j, row by row.
  Vector<float, 4> below[2][16][16 / 4 + 1];
};

namespace internal {

// Makes the squares of `solve` on its diagonal: a lane has a column of one.
PAGEMILL_DEVICE void InvertSquares(const KeyScratch& scratch, float share, LowerMatrix& solve) {
  const int square = Lane() / 16, column = Lane() % 16;
  float x[16];
  PAGEMILL_UNROLL
  for (int row = 0; row < 16; ++row) x[row] = row == column ? 1 : 0;
  PAGEMILL_UNROLL
  for (int row = 0; row < 15; ++row) {
    PAGEMILL_UNROLL
    for (int quad = (row + 1) / 4; quad < 4; ++quad) {
      const Vector<float, 4> below = scratch.below[square][row][quad];
      PAGEMILL_UNROLL
      for (int i = 0; i < 4; ++i) {
        if (4 * quad + i > row) x[4 * quad + i] -= below.values[i] * x[row];
      }
    }
  }
  PAGEMILL_UNROLL
  for (int i = 0; i < 16; i += 2) {
    const SplitPair split(x[i] * share, x[i + 1] * share);
    const int row = 16 * square + i;
    solve.high[row][Lane()] = FirstOf(split.high);
    solve.high[row + 1][Lane()] = SecondOf(split.high);
    solve.low[row][Lane()] = FirstOf(split.low);
    solve.low[row + 1][Lane()] = SecondOf(split.low);
  }
}

// Makes the square of `solve` below those, of which one is left of it and one right above it: less
// the product of the right one, that of A without shares, and the left one. All are transposed, so
// that the first product is the left operand of the second.
PAGEMILL_DEVICE void SolveBelow(const float (&left)[4], const float (&right)[4],
                                LowerMatrix& solve) {
  constexpr int kStride = kDeltaChunk + kRowPadding;
  const int from = Lane() / 16 * 8 * kStride + Lane() % 8 * kStride + Lane() / 8 % 2 * 8;
  uint32_t high[4], low[4];
  LoadTransposed(high, solve.high[0] + from);
  LoadTransposed(low, solve.low[0] + from);
  float product[2][4] = {};
  PAGEMILL_UNROLL
  for (int n = 0; n < 2; ++n) {
    const SplitPair b[2] = {{left[2 * n], left[2 * n + 1]}, {right[2 * n], right[2 * n + 1]}};
    Mma16x8x16(product[n], high, {b[0].high, b[1].high});
    Mma16x8x16(product[n], high, {b[0].low, b[1].low});
    Mma16x8x16(product[n], low, {b[0].high, b[1].high});
  }
  const SplitRows a(product[0], product[1]);
  const int g = Lane() / 4, t = Lane() % 4;
  PAGEMILL_UNROLL
  for (int n = 0; n < 2; ++n) {
    const BFloat16* const at_high = &solve.high[16 + 8 * n + g][16 + 2 * t];
    const BFloat16* const at_low = &solve.low[16 + 8 * n + g][16 + 2 * t];
    float sums[4] = {};
    Mma16x8x16(sums, a.high, {PairAt(at_high), PairAt(at_high + 8)});
    Mma16x8x16(sums, a.low, {PairAt(at_high), PairAt(at_high + 8)});
    Mma16x8x16(sums, a.high, {PairAt(at_low), PairAt(at_low + 8)});
    PAGEMILL_UNROLL
    for (int r = 0; r < 2; ++r) {
      const int row = 16 + 8 * n + 2 * t, column = g + 8 * r;
      const SplitPair split(-sums[2 * r], -sums[2 * r + 1]);
      solve.high[row][column] = FirstOf(split.high);
      solve.high[row + 1][column] = SecondOf(split.high);
      solve.low[row][column] = FirstOf(split.low);
      solve.low[row + 1][column] = SecondOf(split.low);
    }
  }
}

}  // namespace internal

// Makes `solve`, `key_norms` and `key_factors`. Every lane of a warp calls it.
PAGEMILL_DEVICE void MakeKeyMatrices(const DeltaRows& rows, int keys, const Gate& gate,
                                     KeyScratch& scratch, ChunkMatrices& matrices) {
  float sums[internal::kLowerBlocks][4] = {};
  ForEachKeys(keys, [&](int key) {
    const internal::RowFragments k(rows.k, key);
    PAGEMILL_UNROLL
    for (int i = 0; i < internal::kLowerBlocks; ++i) {
      const internal::LowerBlock block = internal::BlockAt(i);
      k.Multiply(block.rows, k, block.columns / 8, sums[i]);
    }
  });
  const Decay decay = internal::SumUpTo(gate.decay);
  PAGEMILL_UNROLL
  for (int i = 0; i < internal::kLowerBlocks; ++i) {
    const internal::LowerBlock block = internal::BlockAt(i);
    if (block.columns < block.rows || !internal::HasDiagonal()) continue;
    matrices.key_norms[block.columns + Lane() / 4] =
        InverseSqrt(internal::Diagonal(sums[i], block.columns / 8) + ops::kDeltaNormEps);
  }
  SyncWarp(AllLanes());  // the norms are there
  const float norm = matrices.key_norms[Lane()];
  matrices.key_factors[Lane()] = decay.Since({0, 0}) * norm;
  scratch.tokens[Lane()] = {decay, norm, gate.share};
  SyncWarp(AllLanes());  // the tokens are there
  const internal::TokensOfBlocks tokens(scratch.tokens);
  PAGEMILL_UNROLL
  for (int i = 0; i < internal::kLowerBlocks; ++i) {
    const internal::LowerBlock block = internal::BlockAt(i);
    const int first = block.columns % 16 + Lane() % 4 * 2;  // column of its square
    PAGEMILL_UNROLL
    for (int e = 0; e < 4; ++e) {
      const internal::ChunkToken &of_row = tokens.Row(block, e), &of = tokens.Column(block, e);
      sums[i][e] *= of_row.norm * of.norm * of_row.decay.Since(of.decay);
      if (block.columns / 16 != block.rows / 16) continue;
      // Those on and above the diagonal are not read.
      const int row = Lane() / 4 + e / 2 * 8;
      scratch.below[block.rows / 16][first + e % 2][row / 4].values[row % 4] =
          of_row.factor * sums[i][e];
    }
  }
  SyncWarp(AllLanes());  // A is there
  internal::InvertSquares(scratch, gate.share, matrices.solve);
  SyncWarp(AllLanes());  // the squares are there
  internal::SolveBelow(sums[2], sums[3], matrices.solve);
}

struct QueryScratch {
  float norms[kDeltaChunk];
  internal::ChunkToken tokens[kDeltaChunk];
};

// Makes the other members. Every lane of a warp calls it.
PAGEMILL_DEVICE void MakeQueryMatrices(const DeltaRows& rows, int keys, float q_scale,
                                       const Gate& gate, QueryScratch& scratch,
                                       ChunkMatrices& matrices) {
  float sums[internal::kLowerBlocks][4] = {}, squares[kDeltaChunk / 8][4] = {};
  ForEachKeys(keys, [&](int key) {
    const internal::RowFragments q(rows.q, key), k(rows.k, key);
    PAGEMILL_UNROLL
    for (int i = 0; i < internal::kLowerBlocks; ++i) {
      const internal::LowerBlock block = internal::BlockAt(i);
      q.Multiply(block.rows, k, block.columns / 8, sums[i]);
    }
    PAGEMILL_UNROLL
    for (int n = 0; n < kDeltaChunk / 8; ++n) q.Multiply(n / 2 * 16, q, n, squares[n]);
  });
  const Decay decay = internal::SumUpTo(gate.decay);
  PAGEMILL_UNROLL
  for (int n = 0; n < kDeltaChunk / 8; ++n) {
    if (!internal::HasDiagonal()) continue;
    scratch.norms[8 * n + Lane() / 4] =
        q_scale * InverseSqrt(internal::Diagonal(squares[n], n) + ops::kDeltaNormEps);
  }
  SyncWarp(AllLanes());  // the norms are there
  const float norm = scratch.norms[Lane()];
  matrices.query_factors[Lane()] = decay.Since({0, 0}) * norm;
  scratch.tokens[Lane()] = {decay, norm, 0};
  SyncWarp(AllLanes());  // the tokens are there
  const Decay last = scratch.tokens[kDeltaChunk - 1].decay;
  matrices.kept[Lane()] = last.Since(decay);
  if (Lane() == 0) matrices.kept_of_state = last.Since({0, 0});
  const internal::TokensOfBlocks tokens(scratch.tokens);
  PAGEMILL_UNROLL
  for (int i = 0; i < internal::kLowerBlocks; ++i) {
    const internal::LowerBlock block = internal::BlockAt(i);
    PAGEMILL_UNROLL
    for (int e = 0; e < 4; e += 2) {
      const int row = block.rows + Lane() / 4 + e / 2 * 8;
      const int column = block.columns + Lane() % 4 * 2;
      const internal::ChunkToken& of_row = tokens.Row(block, e);
      float pair[2];
      PAGEMILL_UNROLL
      for (int j = 0; j < 2; ++j) {
        // 0 above the diagonal: no branch around the exponent.
        const float decayed = of_row.decay.LogSince(tokens.Column(block, j).decay);
        pair[j] = Exp(column + j <= row ? decayed : -INFINITY) * of_row.norm * sums[i][e + j];
      }
      const SplitPair split(pair[0], pair[1]);
      *reinterpret_cast<uint32_t*>(&matrices.attend.high[row][column]) = split.high;
      *reinterpret_cast<uint32_t*>(&matrices.attend.low[row][column]) = split.low;
    }
  }
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_GATED_DELTA_CHUNK_MATRICES_H_
