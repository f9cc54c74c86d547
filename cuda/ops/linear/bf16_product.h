// File: cuda/ops/linear/bf16_product.h
// y = x W^T + bias of bf16 activations, as kernels of tiles (tensor_core_tiles.h,
// matrix_core_tiles.h) have it: rows of x and of W of any format, and where sums go.
#ifndef PAGEMILL_CUDA_OPS_LINEAR_BF16_PRODUCT_H_
#define PAGEMILL_CUDA_OPS_LINEAR_BF16_PRODUCT_H_

#include <cstdint>

#include "cc/ops/quantized/quantized.h"
#include "cc/tensor/tensor_view.h"
#include "cuda/gpu_rows.h"
#include "cuda/gpu_vendor.h"
#include "cuda/ops/linear/tensor_core_tiles.h"
#include "cuda/ops/linear/weights.h"

namespace pagemill::gpu {

// True for a bf16 x and weights in rows of whole tiles. Scales of elements of 8 bits are of whole
// rows, or of blocks of a multiple of kWeightsAtOnce columns.
inline bool FitsBf16Product(const TensorView& x, const TensorView& w) {
  const int64_t columns = w.shape[static_cast<size_t>(w.rank - 1)];
  if (x.dtype != DType::kBF16 || !AreReadable(w) || columns % kTensorCoreColumns != 0) return false;
  if (w.parts == nullptr || !ops::IsScaled(w)) return true;
  const int64_t block_columns = w.parts->format.block_columns;
  return block_columns >= columns || block_columns % kWeightsAtOnce == 0;
}

// Where sums go.
struct ProductResults {
  const float* bias;  // or null
  Rows<BFloat16> y;
  Rows<float> wide_y;
  bool wide;  // y is f32

  static ProductResults Of(const float* bias, const TensorView& y) {
    return {bias, RowsOf<BFloat16>(y), RowsOf<float>(y), y.dtype == DType::kF32};
  }

  struct Target {
    BFloat16* y;
    float* wide_y;  // one of them
  };
  PAGEMILL_DEVICE Target TargetOf(int64_t row) const { return {y[row], wide_y[row]}; }
  PAGEMILL_DEVICE void Store(const Target& to, int64_t output, float sum) const {
    if (bias != nullptr) sum += bias[output];
    if (wide) {
      to.wide_y[output] = sum;
    } else {
      to.y[output] = FromFloat<BFloat16>(sum);
    }
  }
};

// Parameters of a product; the emulation checks `data`, which is x.
struct Bf16ProductRows {
  const BFloat16* data;
  int64_t x_stride;
  ProductResults results;
  int64_t rows, outputs, columns;  // N, M, K

  static Bf16ProductRows Of(const TensorView& x, const TensorView& w, const float* bias,
                        const TensorView& y) {
    const Rows<const BFloat16> rows = RowsOf<const BFloat16>(x);
    return {.data = rows.data,
            .x_stride = rows.stride,
            .results = ProductResults::Of(bias, y),
            .rows = x.shape[0],
            .outputs = w.shape[0],
            .columns = w.shape[1]};
  }
};

// As tensor_core_tiles.h has it.
template <typename Weights>
struct Bf16Product : Bf16ProductRows {
  using W = Weights;
  using Columns = Bf16Columns;
  using Sum = float;

  PAGEMILL_DEVICE Bf16Product(const Bf16ProductRows& of, const Weights& weights)
      : Bf16ProductRows(of), w(weights) {}

  PAGEMILL_DEVICE const Columns* FirstOfX() const {
    return reinterpret_cast<const Columns*>(data);
  }
  PAGEMILL_DEVICE const Columns* RowOfX(int64_t row) const {
    return reinterpret_cast<const Columns*>(data + row * x_stride);
  }
  PAGEMILL_DEVICE typename W::Row RowOfW(int64_t output) const {
    return w.At(/*matrix=*/0, output);
  }
  PAGEMILL_DEVICE Columns LoadW(const typename W::Row& row, int64_t first) const {
    return LoadInBf16<W>(row, first);
  }
  using Target = ProductResults::Target;
  PAGEMILL_DEVICE Target TargetOf(int64_t row) const { return results.TargetOf(row); }
  PAGEMILL_DEVICE void Store(const Target& to, int64_t output, Sum sum) const {
    if constexpr (W::kHasFactors) sum *= RowOfW(output).Factor();
    results.Store(to, output, sum);
  }

  Weights w;
};

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_LINEAR_BF16_PRODUCT_H_
