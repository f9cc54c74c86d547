// The body of kDelta*.
//
// Columns of a state do not depend on each other: some of them are copied to a contiguous buffer,
// which stays in the first-level cache for all tokens of the chunk. A token takes one pass over it:
// what the new state predicts for the next token is summed while the state is written. Lanes hold
// columns, so that nothing is summed across lanes; sums over the K rows have two parts, of even and
// of odd rows, whatever the columns.
#include "cc/ops/gated_delta/delta_chunk.h"

#include "cc/ops/vec/vec.h"
#include "cc/ops/vec/vec_math.h"

namespace pagemill::ops {
namespace {

// With 32 registers, four of columns share the broadcasts of a row: 32 KiB for 128 rows.
constexpr int kBlockVectors = Vec::kLanes >= 16 ? 4 : 2;

// Some columns of a head: kVectors registers, or the first `lanes` of one.
template <int kVectors, bool kPartial>
struct Columns {
  Vec::F Load(const float* row, int v) const {
    if constexpr (kPartial) return Vec::LoadN(row + first, lanes);
    return Vec::Load(row + first + v * Vec::kLanes);
  }
  void Store(float* row, int v, Vec::F value) const {
    if constexpr (kPartial) {
      Vec::StoreN(row + first, value, lanes);
    } else {
      Vec::Store(row + first + v * Vec::kLanes, value);
    }
  }
  float* Row(int64_t i) { return state + i * kVectors * Vec::kLanes; }

  int64_t first = 0;
  int lanes = 0;
  float state[kMaxDeltaKeys * kVectors * Vec::kLanes];  // rows of kVectors registers
};

// The sums of even and of odd rows.
template <int kVectors>
struct Sums {
  Sums() {
    for (int v = 0; v < kVectors; ++v) parts[0][v] = parts[1][v] = Vec::Zero();
  }
  Vec::F Total(int v) const { return Vec::Add(parts[0][v], parts[1][v]); }

  Vec::F parts[2][kVectors];
};

// visit(row, row % 2) for the rows of a state.
template <typename Visit>
inline void ForEachRow(int64_t keys, const Visit& visit) {
  int64_t i = 0;
  for (; i + 2 <= keys; i += 2) {
    visit(i, 0);
    visit(i + 1, 1);
  }
  if (i < keys) visit(i, 0);
}

// Copies the state and returns what it predicts for the first token.
template <int kVectors, bool kPartial>
inline Sums<kVectors> Begin(const DeltaChunk& c, Columns<kVectors, kPartial>& columns) {
  Sums<kVectors> predicted;
  if (c.source == nullptr) {
    for (int64_t i = 0; i < c.keys * kVectors; ++i) {
      Vec::Store(columns.state + i * Vec::kLanes, Vec::Zero());
    }
    return predicted;
  }
  ForEachRow(c.keys, [&](int64_t i, int part) {
    const Vec::F decayed_k = Vec::Set(c.decayed_k[i]);
    for (int v = 0; v < kVectors; ++v) {
      const Vec::F s = columns.Load(c.source + i * c.values, v);
      Vec::Store(columns.Row(i) + v * Vec::kLanes, s);
      predicted.parts[part][v] = Vec::Fma(decayed_k, s, predicted.parts[part][v]);
    }
  });
  return predicted;
}

// state = decay * state + k change^T for token t. Adds state^T q to `y`, and to `predicted` what
// the state predicts for token t + 1, unless t is the last one, whose state goes to the target.
template <bool kLast, int kVectors, bool kPartial>
inline void Update(const DeltaChunk& c, int64_t t, const Vec::F (&change)[kVectors],
                   Columns<kVectors, kPartial>& columns, Sums<kVectors>& y,
                   Sums<kVectors>& predicted) {
  const float* const q = c.q + t * c.keys;
  const float* const k = c.k + t * c.keys;
  const float* const decay = c.decay + t * c.keys;
  const float* const next_k = c.decayed_k + (t + 1) * c.keys;
  ForEachRow(c.keys, [&](int64_t i, int part) {
    const Vec::F k_i = Vec::Set(k[i]), q_i = Vec::Set(q[i]), decay_i = Vec::Set(decay[i]);
    for (int v = 0; v < kVectors; ++v) {
      float* const at = columns.Row(i) + v * Vec::kLanes;
      const Vec::F s = Vec::Fma(k_i, change[v], Vec::Mul(decay_i, Vec::Load(at)));
      y.parts[part][v] = Vec::Fma(q_i, s, y.parts[part][v]);
      if constexpr (kLast) {
        columns.Store(c.target + i * c.values, v, s);
      } else {
        Vec::Store(at, s);
        predicted.parts[part][v] = Vec::Fma(Vec::Set(next_k[i]), s, predicted.parts[part][v]);
      }
    }
  });
}

template <int kVectors, bool kPartial>
inline void DeltaColumns(const DeltaChunk& c, int64_t first, int lanes) {
  Columns<kVectors, kPartial> columns;
  columns.first = first;
  columns.lanes = lanes;
  Sums<kVectors> predicted = Begin(c, columns);
  for (int64_t t = 0; t < c.tokens; ++t) {
    const Vec::F share = Vec::Set(c.share[t]);
    Vec::F change[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      const Vec::F value = columns.Load(c.v + t * c.row_stride, v);
      change[v] = Vec::Mul(share, Vec::Sub(value, predicted.Total(v)));
    }
    Sums<kVectors> y;
    predicted = Sums<kVectors>();
    if (t + 1 < c.tokens) {
      Update<false>(c, t, change, columns, y, predicted);
    } else {
      Update<true>(c, t, change, columns, y, predicted);
    }
    for (int v = 0; v < kVectors; ++v) columns.Store(c.y + t * c.y_stride, v, y.Total(v));
  }
}

inline void Delta(const DeltaChunk& c) {
  constexpr int64_t kBlockColumns = kBlockVectors * Vec::kLanes;
  int64_t j = 0;
  for (; j + kBlockColumns <= c.values; j += kBlockColumns) {
    DeltaColumns<kBlockVectors, false>(c, j, Vec::kLanes);
  }
  for (; j + Vec::kLanes <= c.values; j += Vec::kLanes) {
    DeltaColumns<1, false>(c, j, Vec::kLanes);
  }
  if (j < c.values) DeltaColumns<1, true>(c, j, static_cast<int>(c.values - j));
}

inline float SumSquares(const float* x, int64_t size) {
  Vec::F sum = Vec::Zero();
  int64_t i = 0;
  for (; i + Vec::kLanes <= size; i += Vec::kLanes) {
    const Vec::F part = Vec::Load(x + i);
    sum = Vec::Fma(part, part, sum);
  }
  if (i < size) {
    const Vec::F part = Vec::LoadN(x + i, static_cast<int>(size - i));
    sum = Vec::Fma(part, part, sum);
  }
  return Vec::Sum(sum);
}

inline Vec::F Decay(Vec::F a, Vec::F bias, Vec::F rate) {
  return Exp(Vec::Mul(rate, Softplus(Vec::Add(a, bias))));
}

inline void MakeDecays(const float* a, const float* bias, float rate, int64_t size, float* decay) {
  const Vec::F factor = Vec::Set(rate);
  int64_t i = 0;
  for (; i + Vec::kLanes <= size; i += Vec::kLanes) {
    Vec::Store(decay + i, Decay(Vec::Load(a + i), Vec::Load(bias + i), factor));
  }
  if (i == size) return;
  const int n = static_cast<int>(size - i);
  Vec::StoreN(decay + i, Decay(Vec::LoadN(a + i, n), Vec::LoadN(bias + i, n), factor), n);
}

}  // namespace

const DeltaFunctions PAGEMILL_VEC_NAME(kDelta) = {Delta, MakeDecays, SumSquares};

}  // namespace pagemill::ops
