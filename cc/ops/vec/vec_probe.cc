// A VecProbe.
#include "cc/ops/vec/vec_probe.h"

#include "cc/ops/vec/vec.h"
#include "cc/ops/vec/vec_math.h"

namespace pagemill::ops {
namespace {

template <Vec::F (*kFunction)(Vec::F)>
void Map(const float* x, float* y, int64_t n) {
  for (int64_t i = 0; i < n; i += Vec::kLanes) Vec::Store(y + i, kFunction(Vec::Load(x + i)));
}

template <typename From, typename To>
void CopyN(const From* x, To* y, int n) {
  Vec::StoreN(y, Vec::LoadN(x, n), n);
}

template <typename From, typename To>
void Copy(const From* x, To* y) {
  Vec::Store(y, Vec::Load(x));
}

void Range(const float* x, const float* y, float* z, int low, int high) {
  Vec::Store(z, Vec::Range(Vec::Load(x), Vec::Load(y), low, high));
}

void SwapPairs(const float* x, float* y) { Vec::Store(y, Vec::SwapPairs(Vec::Load(x))); }

void Transpose(float* square) {
  Vec::F rows[Vec::kLanes];
  for (int i = 0; i < Vec::kLanes; ++i) rows[i] = Vec::Load(square + i * Vec::kLanes);
  Vec::Transpose(rows);
  for (int i = 0; i < Vec::kLanes; ++i) Vec::Store(square + i * Vec::kLanes, rows[i]);
}

float Sum(const float* x) { return Vec::Sum(Vec::Load(x)); }
float Maximum(const float* x) { return Vec::Maximum(Vec::Load(x)); }

constexpr VecProbe kProbe = {
    .lanes = Vec::kLanes,
    .exp2 = Map<Exp2>,
    .exp = Map<Exp>,
    .tanh = Map<Tanh>,
    .silu = Map<Silu>,
    .softplus = Map<Softplus>,
    .gelu_erf = Map<GeluErf>,
    .gelu_tanh = Map<GeluTanh>,
    .copy_n = CopyN<float, float>,
    .narrow_n = CopyN<float, uint16_t>,
    .widen_n = CopyN<uint16_t, float>,
    .narrow = Copy<float, uint16_t>,
    .widen = Copy<uint16_t, float>,
    .narrow_f8_n = CopyN<float, uint8_t>,
    .widen_f8_n = CopyN<uint8_t, float>,
    .narrow_f8 = Copy<float, uint8_t>,
    .widen_f8 = Copy<uint8_t, float>,
    .range = Range,
    .swap_pairs = SwapPairs,
    .transpose = Transpose,
    .sum = Sum,
    .maximum = Maximum,
};

}  // namespace

const VecProbe PAGEMILL_VEC_NAME(kVecProbe) = kProbe;

}  // namespace pagemill::ops
