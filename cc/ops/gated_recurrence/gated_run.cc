// The body of GatedRun*. Lanes hold channels; the state of a register of channels stays in it for
// all tokens.
#include "cc/ops/gated_recurrence/gated_run.h"

#include "cc/ops/vec/vec.h"
#include "cc/ops/vec/vec_math.h"
#include "cc/ops/vec/vec_register.h"

namespace pagemill::ops {
namespace {

constexpr float kFactor = -8;

// Correctly rounded in every instruction set.
inline Vec::F Sqrt(Vec::F x) {
  float lanes[Vec::kLanes];
  Vec::Store(lanes, x);
  for (float& lane : lanes) lane = __builtin_sqrtf(lane);
  return Vec::Load(lanes);
}

template <bool kPartial>
inline void RunChannels(const GatedRun& r, const Register<kPartial>& channels) {
  const Vec::F rate = Vec::Mul(Vec::Set(kFactor), Softplus(channels.Load(r.rate)));
  int64_t t = 0;
  Vec::F h;
  if (r.source == nullptr) {
    h = channels.Load(r.x);
    channels.Store(r.y, h);
    t = 1;
  } else {
    h = channels.Load(r.source);
  }
  for (; t < r.tokens; ++t) {
    const Vec::F log_a = Vec::Mul(rate, Sigmoid(channels.Load(r.gate + t * r.gate_stride)));
    // 1 - e^(2 log_a), with all digits if it is small: Elu is e^x - 1 below 0.
    const Vec::F rest = Vec::Sub(Vec::Zero(), Elu(Vec::Add(log_a, log_a)));
    const Vec::F input = Vec::Mul(Sqrt(rest), channels.Load(r.x + t * r.x_stride));
    h = Vec::Fma(Exp(log_a), h, input);
    channels.Store(r.y + t * r.y_stride, h);
  }
  channels.Store(r.target, h);
}

inline void Run(const GatedRun& run) {
  ForEachRegister(run.size, [&](const auto& channels) { RunChannels(run, channels); });
}

}  // namespace

void PAGEMILL_VEC_NAME(GatedRun)(const GatedRun& run) { Run(run); }

}  // namespace pagemill::ops
