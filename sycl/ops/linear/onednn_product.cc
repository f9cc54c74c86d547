#include "sycl/ops/linear/onednn_product.h"

#include <algorithm>
#include <cstddef>
#include <optional>

#include "sycl/device/onednn.h"
#include "sycl/ops/launch.h"
#include "sycl/ops/linear/linear_params.h"
#include "sycl/ops/weights_of.h"

namespace pagemill::sycl {
namespace {

// Outputs of a slice are a multiple of it, or all.
constexpr int64_t kSliceUnit = 128;

int64_t DivideUp(int64_t count, int64_t unit) { return (count + unit - 1) / unit; }

bool AreMany(int64_t rows, const OnednnLimits& limits) { return rows >= limits.rows; }

bool AreStoredAsActivations(const TensorView& x, const TensorView& w) {
  return w.parts == nullptr && w.dtype == x.dtype;
}

// Outputs of a slice of decoded weights; slices are about equal.
int64_t SliceOutputs(const TensorView& x, const TensorView& w, const OnednnLimits& limits) {
  const int64_t outputs = w.shape[0], row_bytes = RowBytes(x.dtype, w.shape[1]);
  const int64_t fitting =
      std::max(limits.slice_bytes / row_bytes / kSliceUnit * kSliceUnit, kSliceUnit);
  const int64_t slices = DivideUp(outputs, fitting);
  return std::min(outputs, DivideUp(DivideUp(outputs, slices), kSliceUnit) * kSliceUnit);
}

// Elements from one row to the next, of rows that the library can read and write.
std::optional<int64_t> StrideOf(const TensorView& rows) {
  const int64_t element_bytes = Info(rows.dtype).block_bytes;
  if (reinterpret_cast<uintptr_t>(rows.data) % kOnednnAlignment != 0 ||
      rows.row_stride_bytes % element_bytes != 0) {
    return std::nullopt;
  }
  return rows.row_stride_bytes / element_bytes;
}

}  // namespace

int64_t OnednnProductBytes(const TensorView& x, const TensorView& w, const OnednnLimits& limits) {
  if (!AreMany(x.shape[0], limits)) return 0;
  const int64_t decoded = AreStoredAsActivations(x, w)
                              ? 0
                              : SliceOutputs(x, w, limits) * RowBytes(x.dtype, w.shape[1]);
  return kOnednnWorkspaceBytes + decoded;
}

bool MultiplyByOnednn(const TensorView& x, const TensorView& w, const float* bias,
                      const TensorView& y, ops::KernelContext& context,
                      const OnednnLimits& limits) {
  if (!AreMany(x.shape[0], limits)) return false;
  const std::optional<int64_t> x_stride = StrideOf(x), y_stride = StrideOf(y);
  if (!x_stride || !y_stride) return false;
  auto& stream = static_cast<SyclStream&>(*context.stream);
  MatrixProduct product = {.type = x.dtype,
                           .f32_result = y.dtype == DType::kF32,
                           .x = x.data,
                           .bias = bias,
                           .y = y.data,
                           .rows = x.shape[0],
                           .outputs = w.shape[0],
                           .columns = w.shape[1],
                           .x_stride = *x_stride,
                           .y_stride = *y_stride,
                           .workspace = context.workspace.data()};
  if (AreStoredAsActivations(x, w)) {
    const std::optional<int64_t> w_stride = StrideOf(w);
    if (!w_stride) return false;
    product.w = w.data;
    product.w_stride = *w_stride;
    return stream.Multiply(product);
  }
  std::byte* const decoded = context.workspace.data() + kOnednnWorkspaceBytes;
  product.w = decoded;
  product.w_stride = product.columns;
  const WeightMatrices weights = WeightsOf(w);
  const int64_t slice = SliceOutputs(x, w, limits);
  for (int64_t first = 0; first < w.shape[0]; first += slice) {
    product.outputs = std::min(slice, w.shape[0] - first);
    if (bias != nullptr) product.bias = bias + first;
    product.y = static_cast<std::byte*>(y.data) + first * Info(y.dtype).block_bytes;
    if (!stream.CanMultiply(product)) return false;
    LaunchGroups(context, ActModule(x.dtype), "decode_weights_kernel", product.outputs,
                 kLinearGroupSize,
                 DecodeWeightsParams{.w = weights,
                                     .to = decoded,
                                     .first_row = first,
                                     .columns = product.columns});
    if (!stream.Multiply(product)) return false;
  }
  return true;
}

}  // namespace pagemill::sycl
