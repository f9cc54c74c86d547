// The body of kSelective*.
//
// Lanes hold channels, so that nothing is summed across lanes; the states of a register of channels
// stay in the first-level cache for all tokens.
#include "cc/ops/selective_scan/selective_run.h"

#include "cc/ops/vec/vec.h"
#include "cc/ops/vec/vec_math.h"
#include "cc/ops/vec/vec_register.h"

namespace pagemill::ops {
namespace {

template <bool kPartial>
inline void RunChannels(const SelectiveRun& r, const Register<kPartial>& channels) {
  float states[kMaxSelectiveStates * Vec::kLanes];
  for (int64_t n = 0; n < r.states; ++n) {
    const Vec::F h =
        r.source == nullptr ? Vec::Zero() : channels.Load(r.source + n * r.state_stride);
    Vec::Store(states + n * Vec::kLanes, h);
  }
  const Vec::F d = channels.Load(r.d), bias = channels.Load(r.dt_bias);
  for (int64_t t = 0; t < r.tokens; ++t) {
    const Vec::F x = channels.Load(r.x + t * r.x_stride);
    const Vec::F dt = Softplus(Vec::Add(channels.Load(r.dt + t * r.dt_stride), bias));
    const Vec::F input = Vec::Mul(dt, x), negative = Vec::Sub(Vec::Zero(), dt);
    const float* b = r.b + t * r.b_stride;
    const float* c = r.c + t * r.c_stride;
    Vec::F y = Vec::Mul(d, x);
    for (int64_t n = 0; n < r.states; ++n) {
      float* const at = states + n * Vec::kLanes;
      const Vec::F rate = Vec::Load(r.rates + n * kSelectiveBlock + channels.first);
      const Vec::F decayed = Vec::Mul(Exp2(Vec::Mul(negative, rate)), Vec::Load(at));
      const Vec::F h = Vec::Fma(Vec::Set(b[n]), input, decayed);
      Vec::Store(at, h);
      y = Vec::Fma(Vec::Set(c[n]), h, y);
    }
    channels.Store(r.y + t * r.y_stride, y);
  }
  for (int64_t n = 0; n < r.states; ++n) {
    channels.Store(r.target + n * r.state_stride, Vec::Load(states + n * Vec::kLanes));
  }
}

inline void Run(const SelectiveRun& run) {
  ForEachRegister(run.size, [&](const auto& channels) { RunChannels(run, channels); });
}

inline void MakeRates(float* rates, int64_t states) {
  for (int64_t i = 0; i < states * kSelectiveBlock; i += Vec::kLanes) {
    Vec::Store(rates + i, Vec::Mul(Vec::Set(kLog2E), Exp(Vec::Load(rates + i))));
  }
}

}  // namespace

constexpr SelectiveFunctions PAGEMILL_VEC_NAME(kSelective){Run, MakeRates};

}  // namespace pagemill::ops
