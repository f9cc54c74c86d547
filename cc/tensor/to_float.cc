#include "cc/tensor/to_float.h"

#include <algorithm>

#include "cc/base/status.h"
#include "cc/tensor/float16.h"

namespace pagemill {

void ToFloat(const TensorView& view, float* to) {
  const int64_t columns = view.RowElements();
  const int64_t rows = view.rank == 0 ? 0 : view.shape[0];
  for (int64_t r = 0; r < rows; ++r, to += columns) {
    switch (view.dtype) {
      case DType::kF32:
        std::copy_n(view.Row<const float>(r), columns, to);
        break;
      case DType::kI32:
        std::copy_n(view.Row<const int32_t>(r), columns, to);
        break;
      case DType::kBF16:
        std::transform(view.Row<const uint16_t>(r), view.Row<const uint16_t>(r) + columns, to,
                       Bf16ToFloat);
        break;
      case DType::kF16:
        std::transform(view.Row<const uint16_t>(r), view.Row<const uint16_t>(r) + columns, to,
                       F16ToFloat);
        break;
      default:
        CheckFailed(__FILE__, __LINE__, "ToFloat: unsupported dtype");
    }
  }
}

void FromFloat(const float* from, const TensorView& view) {
  const int64_t columns = view.RowElements();
  const int64_t rows = view.rank == 0 ? 0 : view.shape[0];
  for (int64_t r = 0; r < rows; ++r, from += columns) {
    switch (view.dtype) {
      case DType::kF32:
        std::copy_n(from, columns, view.Row<float>(r));
        break;
      case DType::kBF16:
        std::transform(from, from + columns, view.Row<uint16_t>(r), FloatToBf16);
        break;
      case DType::kF16:
        std::transform(from, from + columns, view.Row<uint16_t>(r), FloatToF16);
        break;
      default:
        CheckFailed(__FILE__, __LINE__, "FromFloat: unsupported dtype");
    }
  }
}

}  // namespace pagemill
