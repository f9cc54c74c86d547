// The body of kWkvHead*.
//
// Columns of a state do not depend on each other. Lanes hold columns, so that nothing is summed
// across lanes. A token takes one pass over the rows of some columns: what the new state has for
// the next token's key to remove is summed while the state is written.
#include "cc/ops/matrix_wkv/wkv_head.h"

#include "cc/ops/vec/vec.h"
#include "cc/ops/vec/vec_math.h"
#include "cc/ops/vec/vec_register.h"

namespace pagemill::ops {
namespace {

// Registers of columns that share the broadcasts of a row: with AVX-512 all 64 columns of a head of
// the published models.
constexpr int kBlockVectors = Vec::kLanes >= 16 ? 4 : 2;

template <bool kRemoves>
inline float PrepareToken(const WkvOperands& operands, int64_t keys, const WkvUpdate& update) {
  const Vec::F one = Vec::Set(1.0f), zero = Vec::Zero();
  Vec::F inverse_norm = zero;
  if constexpr (kRemoves) {
    Vec::F squares = zero;
    ForEachRegister(keys, [&](const auto& at) {
      const Vec::F x = Vec::Mul(at.Load(operands.removal), at.Load(operands.key));
      squares = Vec::Fma(x, x, squares);
    });
    const float sum = Vec::Sum(squares);
    inverse_norm =
        Vec::Set(1.0f / __builtin_sqrtf(sum < kWkvLeastSquares ? kWkvLeastSquares : sum));
  }
  Vec::F own = zero;
  ForEachRegister(keys, [&](const auto& at) {
    const Vec::F w = at.Load(operands.decay);
    Vec::F key = at.Load(operands.key);
    if constexpr (kRemoves) {
      const Vec::F rate = Sigmoid(at.Load(operands.rate));
      const Vec::F x = Vec::Mul(Vec::Mul(at.Load(operands.removal), key), inverse_norm);
      at.Store(update.removed, x);
      at.Store(update.share, Vec::Sub(zero, Vec::Mul(rate, x)));
      key = Vec::Mul(key, Vec::Fma(at.Load(operands.boost), Vec::Sub(rate, one), one));
      at.Store(update.decay, Exp(Vec::Mul(Vec::Set(kWkvDecayScale), Sigmoid(w))));
    } else {
      at.Store(update.decay, Exp(Vec::Sub(zero, Exp(w))));
    }
    at.Store(update.key, key);
    own = Vec::Fma(at.Load(operands.receptance), Vec::Mul(at.Load(operands.bonus), key), own);
  });
  return Vec::Sum(own);
}

inline float Prepare(const WkvOperands& operands, int64_t keys, const WkvUpdate& update) {
  return operands.rate != nullptr ? PrepareToken<true>(operands, keys, update)
                                  : PrepareToken<false>(operands, keys, update);
}

// kVectors registers of columns from `first` on, or the first `lanes` columns of one.
template <int kVectors, bool kPartial>
struct Columns {
  Register<kPartial> At(int v) const { return {first + v * Vec::kLanes, lanes}; }

  int64_t first;
  int lanes;
};

// Adds row by row what the state has for x to `sums`.
template <int kVectors, bool kPartial>
inline void Predict(const WkvTokens& c, const float* x, const Columns<kVectors, kPartial>& columns,
                    const float* state, Vec::F (&sums)[kVectors]) {
  for (int64_t i = 0; i < c.keys; ++i) {
    const Vec::F x_i = Vec::Set(x[i]);
    for (int v = 0; v < kVectors; ++v) {
      sums[v] = Vec::Fma(x_i, columns.At(v).Load(state + i * c.values), sums[v]);
    }
  }
}

template <bool kRemoves, int kVectors, bool kPartial>
inline void RunColumns(const WkvTokens& c, const Columns<kVectors, kPartial>& columns) {
  const float* state = c.source;
  if (state == nullptr) {
    for (int64_t i = 0; i < c.keys; ++i) {
      for (int v = 0; v < kVectors; ++v) {
        columns.At(v).Store(c.target + i * c.values, Vec::Zero());
      }
    }
    state = c.target;
  }
  Vec::F predicted[kVectors];
  for (Vec::F& sum : predicted) sum = Vec::Zero();
  if constexpr (kRemoves) Predict(c, c.update.removed, columns, state, predicted);
  for (int64_t t = 0; t < c.tokens; ++t) {
    const float* const r = c.receptance + t * c.receptance_stride;
    const float* const decay = c.update.decay + t * c.keys;
    const float* const key = c.update.key + t * c.keys;
    const float* const share = c.update.share + t * c.keys;
    const float* const next_removed = c.update.removed + (t + 1) * c.keys;
    Vec::F value[kVectors], y[kVectors], next[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      value[v] = columns.At(v).Load(c.value + t * c.value_stride);
      y[v] = next[v] = Vec::Zero();
    }
    for (int64_t i = 0; i < c.keys; ++i) {
      const Vec::F r_i = Vec::Set(r[i]), decay_i = Vec::Set(decay[i]), key_i = Vec::Set(key[i]);
      for (int v = 0; v < kVectors; ++v) {
        const Vec::F before = columns.At(v).Load(state + i * c.values);
        Vec::F s = Vec::Fma(key_i, value[v], Vec::Mul(decay_i, before));
        if constexpr (kRemoves) {
          s = Vec::Fma(Vec::Set(share[i]), predicted[v], s);
          next[v] = Vec::Fma(Vec::Set(next_removed[i]), s, next[v]);
        }
        y[v] = Vec::Fma(r_i, kRemoves ? s : before, y[v]);
        columns.At(v).Store(c.target + i * c.values, s);
      }
    }
    const Vec::F own = Vec::Set(c.own[t]);
    for (int v = 0; v < kVectors; ++v) {
      if constexpr (kRemoves) {
        columns.At(v).Store(c.own_y + t * c.own_y_stride, Vec::Mul(own, value[v]));
      } else {
        y[v] = Vec::Fma(own, value[v], y[v]);
      }
      columns.At(v).Store(c.y + t * c.y_stride, y[v]);
      predicted[v] = next[v];
    }
    state = c.target;
  }
}

template <bool kRemoves>
inline void RunHead(const WkvTokens& c) {
  constexpr int64_t kBlockColumns = kBlockVectors * Vec::kLanes;
  int64_t j = 0;
  for (; j + kBlockColumns <= c.values; j += kBlockColumns) {
    RunColumns<kRemoves>(c, Columns<kBlockVectors, false>{j, Vec::kLanes});
  }
  for (; j + Vec::kLanes <= c.values; j += Vec::kLanes) {
    RunColumns<kRemoves>(c, Columns<1, false>{j, Vec::kLanes});
  }
  if (j < c.values) {
    RunColumns<kRemoves>(c, Columns<1, true>{j, static_cast<int>(c.values - j)});
  }
}

inline void Run(const WkvTokens& tokens) {
  if (tokens.removes) {
    RunHead<true>(tokens);
  } else {
    RunHead<false>(tokens);
  }
}

}  // namespace

const WkvHeadFunctions PAGEMILL_VEC_NAME(kWkvHead) = {Prepare, Run};

}  // namespace pagemill::ops
