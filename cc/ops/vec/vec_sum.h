// File: cc/ops/vec/vec_sum.h
// Sums over a row, for normalizations. Include it after one of vec_*.h (see vec_portable.h).
//
//   float squares = SumTerms(x, size, [](Vec::F v) { return Vec::Mul(v, v); });
#ifndef PAGEMILL_CC_OPS_VEC_VEC_SUM_H_
#define PAGEMILL_CC_OPS_VEC_VEC_SUM_H_

#include <cstdint>

namespace pagemill::ops {
namespace {

// Sum over the row of term(v), in four chains; lanes beyond the row are ignored.
template <typename Term>
inline float SumTerms(const float* x, int64_t size, const Term& term) {
  constexpr int kLanes = Vec::kLanes;
  Vec::F chain[4] = {Vec::Zero(), Vec::Zero(), Vec::Zero(), Vec::Zero()};
  int64_t i = 0;
  for (; i + 4 * kLanes <= size; i += 4 * kLanes) {
    for (int c = 0; c < 4; ++c) {
      chain[c] = Vec::Add(chain[c], term(Vec::Load(x + i + c * kLanes)));
    }
  }
  for (; i < size; i += kLanes) {
    const int n = size - i < kLanes ? static_cast<int>(size - i) : kLanes;
    chain[0] = Vec::Add(chain[0], Vec::Range(term(Vec::LoadN(x + i, n)), Vec::Zero(), 0, n));
  }
  return Vec::Sum(Vec::Add(Vec::Add(chain[0], chain[1]), Vec::Add(chain[2], chain[3])));
}

}  // namespace
}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_VEC_VEC_SUM_H_
