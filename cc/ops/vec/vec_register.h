// File: cc/ops/vec/vec_register.h
// The registers of a row whose size need not be a multiple of the lanes. Include it after one of
// vec_*.h (see vec_portable.h).
//
//   ForEachRegister(size, [&](const auto& at) { at.Store(y, Exp(at.Load(x))); });
#ifndef PAGEMILL_CC_OPS_VEC_VEC_REGISTER_H_
#define PAGEMILL_CC_OPS_VEC_VEC_REGISTER_H_

#include <cstdint>

namespace pagemill::ops {
namespace {

// A register of elements from `first` on, or its first `lanes`.
template <bool kPartial>
struct Register {
  Vec::F Load(const float* row) const {
    if constexpr (kPartial) return Vec::LoadN(row + first, lanes);
    return Vec::Load(row + first);
  }
  void Store(float* row, Vec::F value) const {
    if constexpr (kPartial) {
      Vec::StoreN(row + first, value, lanes);
    } else {
      Vec::Store(row + first, value);
    }
  }

  int64_t first;
  int lanes;
};

// visit(register) for the registers of a row of `size` elements.
template <typename Visit>
inline void ForEachRegister(int64_t size, const Visit& visit) {
  int64_t i = 0;
  for (; i + Vec::kLanes <= size; i += Vec::kLanes) visit(Register<false>{i, Vec::kLanes});
  if (i < size) visit(Register<true>{i, static_cast<int>(size - i)});
}

}  // namespace
}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_VEC_VEC_REGISTER_H_
