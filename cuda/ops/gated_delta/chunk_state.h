// File: cuda/ops/gated_delta/chunk_state.h
// 16 columns of a head's state in the registers of a warp, which advance by chunks of tokens.
//
//   ChunkState state(keys, values, column);  // columns from `column` on
//   state.Load(source);                      // zeros if null
//   state.Advance(rows, /*column=*/0, matrices,
//                 [&](int token, int column, BFloat16 y0, BFloat16 y8) { ... });
//   state.Store(target);
//
// Everything is transposed: columns of the state are rows of products, so that the results of one
// product are, lane by lane, the left operand of the next. With g = Lane() / 4 and t = Lane() % 4,
// a lane has rows g and g + 8, and of every 8 keys or tokens those at 2 * t and 2 * t + 1.
#ifndef PAGEMILL_CUDA_OPS_GATED_DELTA_CHUNK_STATE_H_
#define PAGEMILL_CUDA_OPS_GATED_DELTA_CHUNK_STATE_H_

#include <cstdint>

#include "cuda/gpu_vendor.h"
#include "cuda/ops/gated_delta/chunk_matrices.h"
#include "cuda/ops/gated_delta/split_pairs.h"

namespace pagemill::gpu {

class ChunkState {
 public:
  static constexpr int kColumns = 16;

  PAGEMILL_DEVICE ChunkState(int keys, int values, int column)
      : keys_(keys), values_(values), column_(column) {}

  PAGEMILL_DEVICE void Load(const float* matrix) {
    ForEachElement([&](float& element, bool exists, int at) {
      element = exists && matrix != nullptr ? matrix[at] : 0;
    });
  }
  PAGEMILL_DEVICE void Store(float* matrix) {
    ForEachElement([&](const float& element, bool exists, int at) {
      if (exists) matrix[at] = element;
    });
  }

  // Calls store(token, column, y0, y8) for the results of the lane's tokens at a column, counted
  // from the state's first one here, and at the one eight further. `column`: that of `rows`, where
  // v of these columns is.
  template <typename StoreResult>
  PAGEMILL_DEVICE void Advance(const DeltaRows& rows, int column, const ChunkMatrices& matrices,
                               const StoreResult& store) {
    TokenSums changes = {}, y = {};
    MultiplyState(rows, changes, y);
    SubtractFromValues(rows, column, matrices, changes);
    {
      const SplitRows of_values[2] = {{changes[0], changes[1]}, {changes[2], changes[3]}};
      ForEachSum(changes, [](float& sum, int) { sum = 0; });
      MultiplyLower(of_values, matrices.solve, changes);
    }
    Scale(changes, matrices.key_norms);
    Scale(y, matrices.query_factors);
    {
      const SplitRows of_changes[2] = {{changes[0], changes[1]}, {changes[2], changes[3]}};
      MultiplyLower(of_changes, matrices.attend, y);
    }
    PAGEMILL_UNROLL
    for (int n = 0; n < kBlocks; ++n) {
      const uint32_t y0 = PackBFloat16(y[n][0], y[n][1]), y8 = PackBFloat16(y[n][2], y[n][3]);
      store(FirstToken(n), Lane() / 4, FirstOf(y0), FirstOf(y8));
      store(FirstToken(n) + 1, Lane() / 4, SecondOf(y0), SecondOf(y8));
    }
    Scale(changes, matrices.kept);
    AddChanges(rows, matrices.kept_of_state, changes);
  }

 private:
  static constexpr int kBlocks = kDeltaChunk / 8;  // of tokens
  static constexpr int kKeyStride = kMostDeltaKeys + kRowPadding;
  static constexpr int kTokenStride = kDeltaChunk + kRowPadding;
  using TokenSums = float[kBlocks][4];

  // The lane's first one in block n.
  PAGEMILL_DEVICE static int FirstToken(int n) { return 8 * n + Lane() % 4 * 2; }

  template <typename Visit>
  PAGEMILL_DEVICE void ForEachElement(const Visit& visit) {
    const int first = Lane() % 4 * 2, column = column_ + Lane() / 4;
    PAGEMILL_UNROLL
    for (int n = 0; n < kMostDeltaKeys / 8; ++n) {
      PAGEMILL_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int key = 8 * n + first + i % 2, at = column + i / 2 * 8;
        visit(elements_[n][i], key < keys_ && at < values_, key * values_ + at);
      }
    }
  }

  template <typename Visit>
  PAGEMILL_DEVICE static void ForEachSum(TokenSums& sums, const Visit& visit) {
    PAGEMILL_UNROLL
    for (int n = 0; n < kBlocks; ++n) {
      PAGEMILL_UNROLL
      for (int i = 0; i < 4; ++i) visit(sums[n][i], FirstToken(n) + i % 2);
    }
  }
  PAGEMILL_DEVICE static void Scale(TokenSums& sums, const float* factors) {
    ForEachSum(sums, [&](float& sum, int token) { sum *= factors[token]; });
  }

  // Products of the state with k and q.
  PAGEMILL_DEVICE void MultiplyState(const DeltaRows& rows, TokenSums& of_k,
                                     TokenSums& of_q) const {
    const int at = Lane() / 4 * kKeyStride + Lane() % 4 * 2;
    ForEachKeys(keys_, [&](int key) {
      const SplitRows state(elements_[key / 8], elements_[key / 8 + 1]);
      uint32_t k[kBlocks][2], q[kBlocks][2];
      PAGEMILL_UNROLL
      for (int n = 0; n < kBlocks; ++n) {
        PAGEMILL_UNROLL
        for (int i = 0; i < 2; ++i) {
          k[n][i] = PairAt(rows.k[0] + at + n * 8 * kKeyStride + key + 8 * i);
          q[n][i] = PairAt(rows.q[0] + at + n * 8 * kKeyStride + key + 8 * i);
        }
      }
      PAGEMILL_UNROLL
      for (int n = 0; n < kBlocks; ++n) Mma16x8x16(of_k[n], state.high, k[n]);
      PAGEMILL_UNROLL
      for (int n = 0; n < kBlocks; ++n) Mma16x8x16(of_q[n], state.high, q[n]);
      PAGEMILL_UNROLL
      for (int n = 0; n < kBlocks; ++n) Mma16x8x16(of_k[n], state.low, k[n]);
      PAGEMILL_UNROLL
      for (int n = 0; n < kBlocks; ++n) Mma16x8x16(of_q[n], state.low, q[n]);
    });
  }

  // v less what the state before the chunk has for k, in the place of the latter.
  PAGEMILL_DEVICE void SubtractFromValues(const DeltaRows& rows, int column,
                                          const ChunkMatrices& matrices, TokenSums& sums) const {
    const BFloat16* const value = &rows.v[Lane() % 16][column + Lane() / 16 * 8];
    PAGEMILL_UNROLL
    for (int n = 0; n < kBlocks; n += 2) {
      uint32_t v[4];
      LoadTransposed(v, value + n * 8 * (kDeltaColumns + kRowPadding));
      PAGEMILL_UNROLL
      for (int i = 0; i < 8; ++i) {
        const uint32_t pair = v[i / 4 + i % 4 / 2 * 2];
        const float of_v = i % 2 == 0 ? FirstFloat(pair) : SecondFloat(pair);
        float& sum = sums[n + i / 4][i % 4];
        sum = of_v - matrices.key_factors[FirstToken(n + i / 4) + i % 2] * sum;
      }
    }
  }

  // Adds the product with the transposed matrix. Parts have sums of their own, so that products
  // wait less for each other.
  PAGEMILL_DEVICE static void MultiplyLower(const SplitRows (&a)[2], const LowerMatrix& matrix,
                                            TokenSums& sums) {
    const int at = Lane() / 4 * kTokenStride + Lane() % 4 * 2;
    TokenSums low_of_a = {}, low_of_matrix = {};
    PAGEMILL_UNROLL
    for (int s = 0; s < 2; ++s) {
      uint32_t high[kBlocks][2], low[kBlocks][2];
      PAGEMILL_UNROLL
      for (int n = 2 * s; n < kBlocks; ++n) {
        PAGEMILL_UNROLL
        for (int i = 0; i < 2; ++i) {
          high[n][i] = PairAt(matrix.high[0] + at + n * 8 * kTokenStride + 16 * s + 8 * i);
          low[n][i] = PairAt(matrix.low[0] + at + n * 8 * kTokenStride + 16 * s + 8 * i);
        }
      }
      PAGEMILL_UNROLL
      for (int n = 2 * s; n < kBlocks; ++n) Mma16x8x16(sums[n], a[s].high, high[n]);
      PAGEMILL_UNROLL
      for (int n = 2 * s; n < kBlocks; ++n) Mma16x8x16(low_of_a[n], a[s].low, high[n]);
      PAGEMILL_UNROLL
      for (int n = 2 * s; n < kBlocks; ++n) Mma16x8x16(low_of_matrix[n], a[s].high, low[n]);
    }
    PAGEMILL_UNROLL
    for (int n = 0; n < kBlocks; ++n) {
      PAGEMILL_UNROLL
      for (int i = 0; i < 4; ++i) sums[n][i] += low_of_a[n][i] + low_of_matrix[n][i];
    }
  }

  PAGEMILL_DEVICE void AddChanges(const DeltaRows& rows, float kept, const TokenSums& changes) {
    constexpr int kAtOnce = kKeysAtOnce / 16;  // keys, in sixteens
    const SplitRows a[2] = {{changes[0], changes[1]}, {changes[2], changes[3]}};
    const BFloat16* const k = &rows.k[Lane() % 16][Lane() / 16 * 8];
    PAGEMILL_UNROLL
    for (int first = 0; first < kMostDeltaKeys; first += kKeysAtOnce) {
      if (first >= keys_) break;
      float(*const elements)[4] = elements_ + first / 8;
      PAGEMILL_UNROLL
      for (int n = 0; n < 2 * kAtOnce; ++n) {
        PAGEMILL_UNROLL
        for (int i = 0; i < 4; ++i) elements[n][i] *= kept;
      }
      PAGEMILL_UNROLL
      for (int s = 0; s < 2; ++s) {
        uint32_t b[kAtOnce][4];
        PAGEMILL_UNROLL
        for (int n = 0; n < kAtOnce; ++n) {
          LoadTransposed(b[n], k + s * 16 * kKeyStride + first + 16 * n);
        }
        PAGEMILL_UNROLL
        for (int n = 0; n < 2 * kAtOnce; ++n) {
          Mma16x8x16(elements[n], a[s].high, {b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]});
        }
        PAGEMILL_UNROLL
        for (int n = 0; n < 2 * kAtOnce; ++n) {
          Mma16x8x16(elements[n], a[s].low, {b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]});
        }
      }
    }
  }

  const int keys_, values_, column_;
  float elements_[kMostDeltaKeys / 8][4];
};

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_GATED_DELTA_CHUNK_STATE_H_
