// The body of ActivationRow*.
#include "cc/ops/activation/activation_row.h"

#include "cc/ops/vec/vec.h"
#include "cc/ops/vec/vec_math.h"

namespace pagemill::ops {
namespace {

template <ActivationKind kKind, bool kGated>
inline void ActivateElements(const ActivationRow& row) {
  int64_t i = 0;
  for (; i + Vec::kLanes <= row.size; i += Vec::kLanes) {
    Vec::F v = Activate<kKind>(Vec::Load(row.x + i));
    if constexpr (kGated) v = Vec::Mul(v, Vec::Load(row.factor + i));
    Vec::Store(row.y + i, v);
  }
  if (i < row.size) {
    const int n = static_cast<int>(row.size - i);
    Vec::F v = Activate<kKind>(Vec::LoadN(row.x + i, n));
    if constexpr (kGated) v = Vec::Mul(v, Vec::LoadN(row.factor + i, n));
    Vec::StoreN(row.y + i, v, n);
  }
}

template <bool kGated>
inline void ActivateRow(const ActivationRow& row) {
  switch (row.kind) {
    case ActivationKind::kSilu:
      return ActivateElements<ActivationKind::kSilu, kGated>(row);
    case ActivationKind::kGelu:
      return ActivateElements<ActivationKind::kGelu, kGated>(row);
    case ActivationKind::kGeluTanh:
      return ActivateElements<ActivationKind::kGeluTanh, kGated>(row);
    case ActivationKind::kRelu:
      return ActivateElements<ActivationKind::kRelu, kGated>(row);
    case ActivationKind::kTanh:
      return ActivateElements<ActivationKind::kTanh, kGated>(row);
    case ActivationKind::kQuickGelu:
      return ActivateElements<ActivationKind::kQuickGelu, kGated>(row);
    case ActivationKind::kReluSquared:
      return ActivateElements<ActivationKind::kReluSquared, kGated>(row);
  }
}

inline void ActivateRow(const ActivationRow& row) {
  if (row.factor == nullptr) {
    ActivateRow<false>(row);
  } else {
    ActivateRow<true>(row);
  }
}

}  // namespace

void PAGEMILL_VEC_NAME(ActivationRow)(const ActivationRow& row) { ActivateRow(row); }

}  // namespace pagemill::ops
