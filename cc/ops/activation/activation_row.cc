// The body of ActivationRow*.
#include "cc/ops/activation/activation_row.h"

#include "cc/ops/vec/vec.h"
#include "cc/ops/vec/vec_math.h"

namespace pagemill::ops {
namespace {

enum class Form { kAlone, kAloneLimited, kGated, kGatedLimited };

constexpr bool IsAlone(Form form) { return form == Form::kAlone || form == Form::kAloneLimited; }

// act(x), times factor; with limits, of both operands limited, and the factor moved.
template <ActivationKind kKind, Form kForm>
inline Vec::F ActivateElement(const ActivationRow& row, Vec::F x, Vec::F factor) {
  // Min and Max return their second operand if it is NaN.
  if constexpr (kForm == Form::kAloneLimited) {
    x = Vec::Max(Vec::Set(row.lower), Vec::Min(Vec::Set(row.limit), x));
  } else if constexpr (kForm == Form::kGatedLimited) {
    const Vec::F limit = Vec::Set(row.limit);
    x = Vec::Min(limit, x);
    factor = Vec::Max(Vec::Set(-row.limit), Vec::Min(limit, factor));
    factor = Vec::Add(factor, Vec::Set(row.offset));
  }
  const Vec::F y = Activate<kKind>(x);
  return IsAlone(kForm) ? y : Vec::Mul(y, factor);
}

template <ActivationKind kKind, Form kForm>
inline void ActivateElements(const ActivationRow& row) {
  int64_t i = 0;
  for (; i + Vec::kLanes <= row.size; i += Vec::kLanes) {
    Vec::F factor{};
    if constexpr (!IsAlone(kForm)) factor = Vec::Load(row.factor + i);
    Vec::Store(row.y + i, ActivateElement<kKind, kForm>(row, Vec::Load(row.x + i), factor));
  }
  if (i < row.size) {
    const int n = static_cast<int>(row.size - i);
    Vec::F factor{};
    if constexpr (!IsAlone(kForm)) factor = Vec::LoadN(row.factor + i, n);
    Vec::StoreN(row.y + i, ActivateElement<kKind, kForm>(row, Vec::LoadN(row.x + i, n), factor), n);
  }
}

template <Form kForm>
inline void ActivateRow(const ActivationRow& row) {
  switch (row.kind) {
    case ActivationKind::kSilu:
      return ActivateElements<ActivationKind::kSilu, kForm>(row);
    case ActivationKind::kGelu:
      return ActivateElements<ActivationKind::kGelu, kForm>(row);
    case ActivationKind::kGeluTanh:
      return ActivateElements<ActivationKind::kGeluTanh, kForm>(row);
    case ActivationKind::kRelu:
      return ActivateElements<ActivationKind::kRelu, kForm>(row);
    case ActivationKind::kTanh:
      return ActivateElements<ActivationKind::kTanh, kForm>(row);
    case ActivationKind::kQuickGelu:
      return ActivateElements<ActivationKind::kQuickGelu, kForm>(row);
    case ActivationKind::kReluSquared:
      return ActivateElements<ActivationKind::kReluSquared, kForm>(row);
    case ActivationKind::kIdentity:
      return ActivateElements<ActivationKind::kIdentity, kForm>(row);
    case ActivationKind::kSigmoid:
      return ActivateElements<ActivationKind::kSigmoid, kForm>(row);
    case ActivationKind::kElu:
      return ActivateElements<ActivationKind::kElu, kForm>(row);
    case ActivationKind::kSoftplus:
      return ActivateElements<ActivationKind::kSoftplus, kForm>(row);
  }
}

inline void ActivateRow(const ActivationRow& row) {
  if (row.factor == nullptr) {
    row.limited ? ActivateRow<Form::kAloneLimited>(row) : ActivateRow<Form::kAlone>(row);
  } else {
    row.limited ? ActivateRow<Form::kGatedLimited>(row) : ActivateRow<Form::kGated>(row);
  }
}

}  // namespace

void PAGEMILL_VEC_NAME(ActivationRow)(const ActivationRow& row) { ActivateRow(row); }

}  // namespace pagemill::ops
