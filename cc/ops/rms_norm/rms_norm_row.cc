// The body of RmsNormRow*.
#include "cc/ops/rms_norm/rms_norm_row.h"

#include "cc/ops/vec/vec.h"

namespace pagemill::ops {
namespace {

// x, or x + residual, which it also stores; lanes from n on are 0.
inline Vec::F LoadSum(const RmsNormRow& row, int64_t i, int n) {
  Vec::F v = n == Vec::kLanes ? Vec::Load(row.x + i) : Vec::LoadN(row.x + i, n);
  if (row.residual == nullptr) return v;
  if (n == Vec::kLanes) {
    v = Vec::Add(v, Vec::Load(row.residual + i));
    Vec::Store(row.sum + i, v);
  } else {
    v = Vec::Add(v, Vec::LoadN(row.residual + i, n));
    Vec::StoreN(row.sum + i, v, n);
  }
  return v;
}

// The sum of squares in four chains, to hide the latency of the addition.
inline float SumOfSquares(const RmsNormRow& row) {
  constexpr int kLanes = Vec::kLanes;
  Vec::F chain[4] = {Vec::Zero(), Vec::Zero(), Vec::Zero(), Vec::Zero()};
  int64_t i = 0;
  for (; i + 4 * kLanes <= row.size; i += 4 * kLanes) {
    for (int c = 0; c < 4; ++c) {
      const Vec::F v = LoadSum(row, i + c * kLanes, kLanes);
      chain[c] = Vec::Fma(v, v, chain[c]);
    }
  }
  for (; i + kLanes <= row.size; i += kLanes) {
    const Vec::F v = LoadSum(row, i, kLanes);
    chain[0] = Vec::Fma(v, v, chain[0]);
  }
  if (i < row.size) {
    const Vec::F v = LoadSum(row, i, static_cast<int>(row.size - i));
    chain[1] = Vec::Fma(v, v, chain[1]);
  }
  return Vec::Sum(Vec::Add(Vec::Add(chain[0], chain[1]), Vec::Add(chain[2], chain[3])));
}

inline void NormalizeRow(const RmsNormRow& row) {
  const float mean = SumOfSquares(row) / static_cast<float>(row.size);
  const Vec::F scale = Vec::Set(1.0f / __builtin_sqrtf(mean + row.eps));
  const Vec::F offset = Vec::Set(row.weight_offset);
  const float* source = row.residual == nullptr ? row.x : row.sum;
  int64_t i = 0;
  for (; i + Vec::kLanes <= row.size; i += Vec::kLanes) {
    const Vec::F w = Vec::Add(Vec::Load(row.w + i), offset);
    Vec::Store(row.y + i, Vec::Mul(Vec::Mul(Vec::Load(source + i), scale), w));
  }
  if (i < row.size) {
    const int n = static_cast<int>(row.size - i);
    const Vec::F w = Vec::Add(Vec::LoadN(row.w + i, n), offset);
    Vec::StoreN(row.y + i, Vec::Mul(Vec::Mul(Vec::LoadN(source + i, n), scale), w), n);
  }
}

}  // namespace

void PAGEMILL_VEC_NAME(RmsNormRow)(const RmsNormRow& row) { NormalizeRow(row); }

}  // namespace pagemill::ops
