// The body of kDelta*.
//
// Columns of a state do not depend on each other: some of them are copied to a contiguous buffer,
// which stays in the first-level cache for all tokens of the chunk. Lanes hold columns, so that
// nothing is summed across lanes; sums over the K rows have two parts, of even and of odd rows,
// whatever the columns.
#include "cc/ops/gated_delta/delta_chunk.h"

#include "cc/ops/vec/vec.h"
#include "cc/ops/vec/vec_math.h"

namespace pagemill::ops {
namespace {

constexpr int kBlockVectors = 2;

// Some columns of a head: kVectors registers, or the first `lanes` of one.
template <int kVectors, bool kPartial>
struct Columns {
  static constexpr int kWidth = kVectors * Vec::kLanes;

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

  int64_t first = 0;
  int lanes = 0;
  float state[kMaxDeltaKeys * kWidth];  // [keys, kWidth]
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

// (decay * state)^T k.
template <int kVectors>
inline Sums<kVectors> Predict(const float* state, const float* k, const float* decay,
                              int64_t keys) {
  Sums<kVectors> sums;
  const auto add = [&](int64_t i, int part) {
    const Vec::F k_i = Vec::Set(k[i] * decay[i]);
    for (int v = 0; v < kVectors; ++v) {
      const Vec::F s = Vec::Load(state + (i * kVectors + v) * Vec::kLanes);
      sums.parts[part][v] = Vec::Fma(k_i, s, sums.parts[part][v]);
    }
  };
  int64_t i = 0;
  for (; i + 2 <= keys; i += 2) {
    add(i, 0);
    add(i + 1, 1);
  }
  if (i < keys) add(i, 0);
  return sums;
}

// state = decay * state + k change^T; returns state^T q.
template <int kVectors>
inline Sums<kVectors> Update(float* state, const float* q, const float* k, const float* decay,
                             const Vec::F (&change)[kVectors], int64_t keys) {
  Sums<kVectors> sums;
  const auto update = [&](int64_t i, int part) {
    const Vec::F k_i = Vec::Set(k[i]), q_i = Vec::Set(q[i]), decay_i = Vec::Set(decay[i]);
    for (int v = 0; v < kVectors; ++v) {
      float* at = state + (i * kVectors + v) * Vec::kLanes;
      const Vec::F s = Vec::Fma(k_i, change[v], Vec::Mul(decay_i, Vec::Load(at)));
      Vec::Store(at, s);
      sums.parts[part][v] = Vec::Fma(q_i, s, sums.parts[part][v]);
    }
  };
  int64_t i = 0;
  for (; i + 2 <= keys; i += 2) {
    update(i, 0);
    update(i + 1, 1);
  }
  if (i < keys) update(i, 0);
  return sums;
}

template <int kVectors, bool kPartial>
inline void DeltaColumns(const DeltaChunk& c, int64_t first, int lanes) {
  Columns<kVectors, kPartial> columns;
  columns.first = first;
  columns.lanes = lanes;
  for (int64_t i = 0; i < c.keys; ++i) {
    for (int v = 0; v < kVectors; ++v) {
      const Vec::F s =
          c.source == nullptr ? Vec::Zero() : columns.Load(c.source + i * c.values, v);
      Vec::Store(columns.state + i * columns.kWidth + v * Vec::kLanes, s);
    }
  }
  for (int64_t t = 0; t < c.tokens; ++t) {
    const float* const k = c.k + t * c.keys;
    const float* const decay = c.decay + t * c.keys;
    const Vec::F share = Vec::Set(c.share[t]);
    const Sums<kVectors> predicted = Predict<kVectors>(columns.state, k, decay, c.keys);
    Vec::F change[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      const Vec::F value = columns.Load(c.v + t * c.row_stride, v);
      change[v] = Vec::Mul(share, Vec::Sub(value, predicted.Total(v)));
    }
    const Sums<kVectors> y =
        Update<kVectors>(columns.state, c.q + t * c.keys, k, decay, change, c.keys);
    for (int v = 0; v < kVectors; ++v) columns.Store(c.y + t * c.y_stride, v, y.Total(v));
  }
  for (int64_t i = 0; i < c.keys; ++i) {
    for (int v = 0; v < kVectors; ++v) {
      const float* s = columns.state + i * columns.kWidth + v * Vec::kLanes;
      columns.Store(c.target + i * c.values, v, Vec::Load(s));
    }
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

const DeltaFunctions PAGEMILL_VEC_NAME(kDelta) = {Delta, MakeDecays};

}  // namespace pagemill::ops
