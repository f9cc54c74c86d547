// The bodies of RowPasses.
#include "cc/ops/sample/row_passes.h"

#include "cc/ops/vec/vec.h"

namespace pagemill::ops {
namespace {

static_assert(kStretch % Vec::kLanes == 0);
constexpr int64_t kRegistersOfStretch = kStretch / Vec::kLanes;
constexpr float kInfinity = __builtin_inff();

// Loads up to a register of logits; lanes from `left` on are `fill`.
inline Vec::F LoadOr(const float* x, int64_t left, float fill) {
  if (left >= Vec::kLanes) return Vec::Load(x);
  if (left <= 0) return Vec::Set(fill);
  const int n = static_cast<int>(left);
  return Vec::Range(Vec::LoadN(x, n), Vec::Set(fill), 0, n);
}

// e^x for x <= 0, relative error below 2e-7; 0 below -87.3. x = n ln2 + r with |r| <= ln2 / 2; e^r
// by its Taylor polynomial of degree 7 (remainder < 6e-9). ln2 is split in two so that n ln2_high
// is exact (Cody and Waite).
inline Vec::F ExpOfNegative(Vec::F x) {
  constexpr float kLog2OfE = 1.44269504f;
  constexpr float kLn2High = 0.693359375f;
  constexpr float kLn2Low = -2.12194440e-4f;
  constexpr float kLowest = -87.3f;
  const Vec::F clamped = Vec::Max(x, Vec::Set(kLowest));
  const Vec::F n = Vec::Round(Vec::Mul(clamped, Vec::Set(kLog2OfE)));
  Vec::F r = Vec::Fma(n, Vec::Set(-kLn2High), clamped);
  r = Vec::Fma(n, Vec::Set(-kLn2Low), r);
  Vec::F p = Vec::Set(1.0f / 5040.0f);
  p = Vec::Fma(p, r, Vec::Set(1.0f / 720.0f));
  p = Vec::Fma(p, r, Vec::Set(1.0f / 120.0f));
  p = Vec::Fma(p, r, Vec::Set(1.0f / 24.0f));
  p = Vec::Fma(p, r, Vec::Set(1.0f / 6.0f));
  p = Vec::Fma(p, r, Vec::Set(0.5f));
  p = Vec::Fma(p, r, Vec::Set(1.0f));
  p = Vec::Fma(p, r, Vec::Set(1.0f));
  return Vec::Less(x, Vec::Set(kLowest), Vec::Zero(), Vec::ScaleByPowerOf2(p, n));
}

inline Vec::F Weight(Vec::F x, const RowWeights& weights) {
  const Vec::F below = Vec::Sub(x, Vec::Set(weights.max));
  return ExpOfNegative(Vec::Mul(below, Vec::Set(weights.inverse_temperature)));
}

// Calls body(register, its offset in x) for a stretch, with whole registers if it is full.
template <typename Body>
inline void ForStretch(const float* x, int64_t left, float fill, const Body& body) {
  if (left >= kStretch) {
    for (int64_t i = 0; i < kRegistersOfStretch; ++i) body(Vec::Load(x + i * Vec::kLanes));
    return;
  }
  for (int64_t i = 0; i < left; i += Vec::kLanes) body(LoadOr(x + i, left - i, fill));
}

inline float StretchMaximum(const float* x, int64_t left) {
  Vec::F best = Vec::Set(-kInfinity);
  ForStretch(x, left, -kInfinity, [&](Vec::F v) { best = Vec::Max(v, best); });
  return Vec::Maximum(best);
}

MaxEntry ArgMaxPass(const float* x, int64_t n) {
  // The maximum of each block is compared once; only the block with the row's maximum is searched.
  constexpr int64_t kBlock = 16 * kStretch;
  Vec::F unusable = Vec::Zero();  // not 0 in lanes that saw NaN or +inf
  float max = -kInfinity;
  int64_t block_of_max = 0;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    Vec::F best = Vec::Set(-kInfinity);
    const int64_t end = begin + kBlock < n ? begin + kBlock : n;
    for (int64_t i = begin; i < end; i += kStretch) {
      ForStretch(x + i, end - i, -kInfinity, [&](Vec::F v) {
        best = Vec::Max(v, best);
        unusable = Vec::Less(v, Vec::Set(kInfinity), unusable, Vec::Set(1.0f));
      });
    }
    const float best_of_block = Vec::Maximum(best);
    if (best_of_block > max) {
      max = best_of_block;
      block_of_max = begin;
    }
  }
  if (Vec::Maximum(unusable) > 0.0f || !(max > -kInfinity)) return {};
  int64_t at = block_of_max;
  while (x[at] != max) ++at;
  return {static_cast<int32_t>(at), max};
}

void StretchMaximaPass(const float* x, int64_t n, Candidate* out) {
  for (int64_t i = 0, s = 0; i < n; i += kStretch, ++s) {
    out[s] = {StretchMaximum(x + i, n - i), static_cast<int32_t>(s)};
  }
}

void StretchWeightsPass(const float* x, int64_t n, const RowWeights& weights, Candidate* out) {
  for (int64_t i = 0, s = 0; i < n; i += kStretch, ++s) {
    Vec::F sum = Vec::Zero();
    ForStretch(x + i, n - i, -kInfinity,
               [&](Vec::F v) { sum = Vec::Add(sum, Weight(v, weights)); });
    out[s] = {Vec::Sum(sum), static_cast<int32_t>(s)};
  }
}

void WeighPass(const float* x, int64_t n, const RowWeights& weights, float* out) {
  ForStretch(x, n, -kInfinity, [&](Vec::F v) {
    Vec::Store(out, Weight(v, weights));
    out += Vec::kLanes;
  });
}

int64_t CountAbovePass(const float* x, int64_t n, float bound) {
  Vec::F count = Vec::Zero();  // whole numbers below 2^24
  for (int64_t i = 0; i < n; i += kStretch) {
    ForStretch(x + i, n - i, -kInfinity, [&](Vec::F v) {
      const Vec::F one = Vec::Less(Vec::Set(bound), v, Vec::Set(1.0f), Vec::Zero());
      count = Vec::Add(count, one);
    });
  }
  return static_cast<int64_t>(Vec::Sum(count));
}

int64_t GatherPass(const float* x, int64_t n, float cut, Candidate* out) {
  // The lowest finite number, so that -inf is excluded.
  const float lowest = cut > -__FLT_MAX__ ? cut : -__FLT_MAX__;
  int64_t found = 0;
  for (int64_t i = 0; i < n; i += kStretch) {
    if (!(StretchMaximum(x + i, n - i) >= lowest)) continue;
    const int64_t end = i + kStretch < n ? i + kStretch : n;
    for (int64_t t = i; t < end; ++t) {
      out[found].logit = x[t];
      out[found].token_id = static_cast<int32_t>(t);
      found += static_cast<int64_t>(x[t] >= lowest);  // no branch: it would be guessed wrong
    }
  }
  return found;
}

constexpr RowPasses MakeRowPasses(const char* name) {
  return {.name = name,
          .arg_max = ArgMaxPass,
          .stretch_maxima = StretchMaximaPass,
          .stretch_weights = StretchWeightsPass,
          .weigh = WeighPass,
          .count_above = CountAbovePass,
          .gather = GatherPass};
}

}  // namespace

const RowPasses PAGEMILL_VEC_NAME(kRowPasses) = MakeRowPasses(PAGEMILL_VEC_ISA);

}  // namespace pagemill::ops
