#include "cuda/ops/linear/cublas_lt_results.h"

#include <algorithm>

#include "cuda/gpu_launch.h"
#include "cuda/gpu_vendor.h"

namespace pagemill::gpu {
namespace {

// A block for a row.
template <typename T>
PAGEMILL_KERNEL AddBias(Rows<const float> sums, const float* bias, Rows<T> y, int64_t outputs) {
  const int64_t row = BlockIndex().x;
  for (int64_t m = ThreadIndex().x; m < outputs; m += BlockSize().x) {
    y[row][m] = FromFloat<T>(sums[row][m] + bias[m]);
  }
}

template <typename T>
Rows<T> RowsOfPart(const PartOfResult& part) {
  const Rows<T> all = RowsOf<T>(part.y);
  return {all.data + part.first_row * all.stride + part.first_output, all.stride};
}

}  // namespace

int64_t FittingSlice(int64_t total, int64_t slice_bytes, int64_t bytes_of_one) {
  const int64_t fitting = slice_bytes / bytes_of_one / kSliceUnit * kSliceUnit;
  return std::min(total, std::max(fitting, kSliceUnit));
}

std::byte* AlignedWorkspace(std::byte* workspace) {
  const auto misalign = reinterpret_cast<uintptr_t>(workspace) % kCublasLtWorkspaceAlignment;
  return misalign == 0 ? workspace : workspace + (kCublasLtWorkspaceAlignment - misalign);
}

SumsOfSlices SumsOfSlices::Of(int64_t rows, int64_t outputs, bool are_needed,
                              int64_t slice_bytes) {
  if (!are_needed) return {.rows = rows};
  constexpr int64_t kSumBytes = sizeof(float);
  const int64_t stride = RoundUp(outputs, 8);
  const int64_t fitting = FittingSlice(rows, slice_bytes, stride * kSumBytes);
  return {.rows = fitting, .stride = stride, .bytes = fitting * stride * kSumBytes};
}

bool MultiplyPart(const PartOfResult& part, MatrixProduct product, GpuStream& stream) {
  const bool is_wide = part.y.dtype == DType::kF32;
  const bool has_sums = NeedsSums(part.y, part.bias != nullptr);
  const Rows<BFloat16> y = RowsOfPart<BFloat16>(part);
  const Rows<float> wide_y = RowsOfPart<float>(part);
  const Rows<float> sums = has_sums ? part.sums : wide_y;
  product.wide = is_wide || has_sums;
  product.y = product.wide ? static_cast<void*>(sums.data) : y.data;
  product.y_stride = product.wide ? sums.stride : y.stride;
  if (!stream.Multiply(product)) return false;
  if (part.bias == nullptr) return true;
  const auto add_bias = [&]<typename T>(const Rows<T>& to) {
    Launch(stream,
           {.blocks = {static_cast<uint32_t>(product.rows)},
            .threads = {BlockThreads(product.outputs, 1, 256)}},
           AddBias<T>, Rows<const float>{sums.data, sums.stride}, part.bias + part.first_output, to,
           product.outputs);
  };
  if (is_wide) {
    add_bias(wide_y);
  } else {
    add_bias(y);
  }
  return true;
}

}  // namespace pagemill::gpu
