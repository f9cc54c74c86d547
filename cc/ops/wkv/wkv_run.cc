// The body of WkvRun*. Lanes hold channels; the state of a register of channels stays in registers
// for all tokens.
#include "cc/ops/wkv/wkv_run.h"

#include "cc/ops/vec/vec.h"
#include "cc/ops/vec/vec_math.h"
#include "cc/ops/vec/vec_register.h"

namespace pagemill::ops {
namespace {

// Numerator and denominator of a weighted mean, both divided by e^exponent.
struct Sums {
  Vec::F numerator, denominator, exponent;
};

// The sums with another value, whose weight is e^exponent. Of both weights relative to the larger
// one, that one is 1, so one exponential is enough.
inline Sums Add(const Sums& sums, Vec::F value, Vec::F exponent) {
  const Vec::F one = Vec::Set(1.0f);
  const Vec::F difference = Vec::Sub(sums.exponent, exponent);
  const Vec::F smaller = Exp(Vec::Sub(Vec::Zero(), Vec::Abs(difference)));
  const Vec::F before = Vec::Less(sums.exponent, exponent, smaller, one);
  const Vec::F now = Vec::Less(sums.exponent, exponent, one, smaller);
  return {Vec::Fma(before, sums.numerator, Vec::Mul(now, value)),
          Vec::Fma(before, sums.denominator, now),
          Vec::Less(sums.exponent, exponent, exponent, sums.exponent)};
}

template <bool kPartial>
inline void RunChannels(const WkvRun& r, const Register<kPartial>& channels) {
  const Vec::F rate = Exp(channels.Load(r.decay));
  const Vec::F first = channels.Load(r.first);
  int64_t t = 0;
  Sums sums;
  if (r.source == nullptr) {
    sums = {channels.Load(r.value), Vec::Set(1.0f), channels.Load(r.key)};
    channels.Store(r.y, sums.numerator);
    t = 1;
  } else {
    sums = {channels.Load(r.source), channels.Load(r.source + r.state_stride),
            channels.Load(r.source + 2 * r.state_stride)};
  }
  for (; t < r.tokens; ++t) {
    const Vec::F key = channels.Load(r.key + t * r.key_stride);
    const Vec::F value = channels.Load(r.value + t * r.value_stride);
    const Sums all = Add(sums, value, Vec::Add(first, key));
    channels.Store(r.y + t * r.y_stride, Vec::Div(all.numerator, all.denominator));
    sums.exponent = Vec::Sub(sums.exponent, rate);
    sums = Add(sums, value, key);
  }
  channels.Store(r.target, sums.numerator);
  channels.Store(r.target + r.state_stride, sums.denominator);
  channels.Store(r.target + 2 * r.state_stride, sums.exponent);
}

inline void Run(const WkvRun& run) {
  ForEachRegister(run.size, [&](const auto& channels) { RunChannels(run, channels); });
}

}  // namespace

void PAGEMILL_VEC_NAME(WkvRun)(const WkvRun& run) { Run(run); }

}  // namespace pagemill::ops
