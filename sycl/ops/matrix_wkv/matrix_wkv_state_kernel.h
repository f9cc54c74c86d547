#ifndef PAGEMILL_SYCL_OPS_MATRIX_WKV_MATRIX_WKV_STATE_KERNEL_H_
#define PAGEMILL_SYCL_OPS_MATRIX_WKV_MATRIX_WKV_STATE_KERNEL_H_

#include "sycl/ops/kernel.h"
#include "sycl/ops/matrix_wkv/matrix_wkv_params.h"
#include "sycl/ops/states/state_column.h"
#include "sycl/ops/states/state_runs.h"

inline float WkvSigmoid(float x) { return 1 / (1 + sycl::exp(-x)); }

// One token of a head: its rows, at the head's first key.
struct WkvToken {
  const Act *receptance, *decay, *key, *rate;

  WkvToken(const MatrixWkvParams& p, int32_t t, int64_t first)
      : receptance(p.receptance.Row<const Act>(t) + first),
        decay(p.shared_decay == nullptr ? p.decay.Row<const Act>(t) + first : nullptr),
        key(p.key.Row<const Act>(t) + first),
        rate(p.removal != nullptr ? p.rate.Row<const Act>(t) + first : nullptr) {}
};

// A head's vectors.
struct WkvVectors {
  const float *decay, *bonus, *removal, *boost;

  WkvVectors(const MatrixWkvParams& p, int64_t first)
      : decay(p.shared_decay == nullptr ? nullptr : p.shared_decay + first),
        bonus(p.bonus + first),
        removal(p.removal == nullptr ? nullptr : p.removal + first),
        boost(p.removal == nullptr ? nullptr : p.boost + first) {}
};

// 1 / |removal * key|, of the sub-group's head.
inline float InverseKeyNorm(const MatrixWkvParams& p, const WkvVectors& vectors,
                            const WkvToken& token) {
  float squares = 0;
  for (int32_t i = Lane(); i < p.keys; i += kLanes) {
    const float x = vectors.removal[i] * Load(token.key + i);
    squares = sycl::fma(x, x, squares);
  }
  return 1.0f / sycl::sqrt(sycl::fmax(LaneSum(squares), p.least_squares));
}

// A sub-group for each column of a head's state of a request.
PAGEMILL_KERNEL void matrix_wkv_kernel(MatrixWkvParams p) {
  const int64_t columns = int64_t{p.heads} * p.values;
  const int64_t request = GlobalSubGroup() / columns, column = GlobalSubGroup() % columns;
  if (request >= p.batch.num_requests) return;
  const int64_t head = column / p.values, first = head * p.keys;
  const int64_t in_page = first * p.values + column % p.values;
  const bool removes = p.removal != nullptr;
  const WkvVectors vectors(p, first);
  StateColumn state(p.keys, /*stride=*/p.values);
  ForEachStateRun(p.batch, request, [&](const StateRun& run) {
    const bool starts = run.source == kNullPage;
    state.Load(starts ? nullptr : p.states.Row<const float>(run.source) + in_page);
    for (int32_t t = run.begin; t < run.end; ++t) {
      const WkvToken token(p, t, first);
      const float value = Load(p.value.Row<const Act>(t) + column);
      float inverse_norm = 0, predicted = 0;
      if (removes) {
        inverse_norm = InverseKeyNorm(p, vectors, token);
        state.ForEachRow([&](float& h, int32_t i) {
          predicted =
              sycl::fma(vectors.removal[i] * Load(token.key + i) * inverse_norm, h, predicted);
        });
        predicted = LaneSum(predicted);
      }
      float sum = 0, own = 0;
      state.ForEachRow([&](float& h, int32_t i) {
        const float w = vectors.decay != nullptr ? vectors.decay[i] : Load(token.decay + i);
        const float r = Load(token.receptance + i);
        float key = Load(token.key + i);
        if (removes) {
          const float rate = WkvSigmoid(Load(token.rate + i));
          const float share = -rate * (vectors.removal[i] * key * inverse_norm);
          key *= sycl::fma(vectors.boost[i], rate - 1, 1.0f);
          const float decay = sycl::exp(p.decay_scale * WkvSigmoid(w));
          h = sycl::fma(key, value, sycl::fma(share, predicted, decay * h));
          sum = sycl::fma(r, h, sum);
        } else {
          sum = sycl::fma(r, h, sum);
          h = sycl::fma(key, value, sycl::exp(-sycl::exp(w)) * h);
        }
        own = sycl::fma(r * vectors.bonus[i], key, own);
      });
      sum = LaneSum(sum);
      own = LaneSum(own) * value;
      if (Lane() != 0) continue;
      Store(p.y.Row<Act>(t) + column, removes ? sum : sum + own);
      if (removes) Store(p.own.Row<Act>(t) + column, own);
    }
    if (run.target == kNullPage) return;
    state.Store(p.states.Row<float>(run.target) + in_page);
  });
}

#endif  // PAGEMILL_SYCL_OPS_MATRIX_WKV_MATRIX_WKV_STATE_KERNEL_H_
