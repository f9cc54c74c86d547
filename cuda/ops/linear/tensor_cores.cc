#include "cuda/ops/linear/tensor_cores.h"

#include <cstdint>

#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/gpu_vendor.h"
#include "cuda/ops/linear/tensor_core_tiles.h"
#include "cuda/ops/linear/weights.h"

namespace pagemill::gpu {
namespace {

constexpr int kFewRows = 32;  // of x, up to which warps share K

// Parameters of a product; the emulation checks `data`, which is x.
struct ProductRows {
  const BFloat16* data;
  int64_t x_stride;
  const float* bias;
  Rows<BFloat16> y;
  Rows<float> wide_y;
  int64_t rows, outputs, columns;  // N, M, K
  bool wide;                       // y is f32
};

// As tensor_core_tiles.h has it.
template <typename Weights>
struct Product : ProductRows {
  using W = Weights;
  using Columns = Bf16Columns;
  using Sum = float;

  PAGEMILL_DEVICE Product(const ProductRows& of, const Weights& weights)
      : ProductRows(of), w(weights) {}

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
  PAGEMILL_DEVICE void Store(int64_t row, int64_t output, Sum sum) const {
    if constexpr (W::kHasFactors) sum *= RowOfW(output).Factor();
    if (bias != nullptr) sum += bias[output];
    if (wide) {
      wide_y[row][output] = sum;
    } else {
      y[row][output] = FromFloat<BFloat16>(sum);
    }
  }

  Weights w;
};

// Block (outputs, rows).
template <typename W, typename Tile>
PAGEMILL_KERNEL_OF(Tile::kThreads, Tile::kBlocks) MultiplyTile(ProductRows product, W w) {
  Tile::Multiply(Product<W>(product, w), int64_t{BlockIndex().x} * Tile::kOutputs,
                 int64_t{BlockIndex().y} * Tile::kRows);
}

template <typename Tile, typename W>
void LaunchTiles(const ProductRows& product, const W& w, device::Stream& stream) {
  Launch(stream,
         {.blocks = {DivideUp(product.outputs, Tile::kOutputs),
                     DivideUp(product.rows, Tile::kRows)},
          .threads = {Tile::kThreads}},
         MultiplyTile<W, Tile>, product, w);
}

}  // namespace

bool FitsTensorCores(const device::Capabilities& caps, const TensorView& x, const TensorView& w) {
  const int64_t columns = w.shape[static_cast<size_t>(w.rank - 1)];
  return HasTensorCores(caps) && x.dtype == DType::kBF16 && AreReadable(w) &&
         columns % kTensorCoreColumns == 0;
}

void MultiplyOnTensorCores(const TensorView& x, const TensorView& w, const float* bias,
                           const TensorView& y, device::Stream& stream) {
  const Rows<const BFloat16> rows = RowsOf<const BFloat16>(x);
  const ProductRows product = {.data = rows.data,
                               .x_stride = rows.stride,
                               .bias = bias,
                               .y = RowsOf<BFloat16>(y),
                               .wide_y = RowsOf<float>(y),
                               .rows = x.shape[0],
                               .outputs = w.shape[0],
                               .columns = w.shape[1],
                               .wide = y.dtype == DType::kF32};
  WithWeights(w, [&]<typename W>(const W& weights) {
    if (product.rows <= 8) {
      LaunchTiles<FewRows<Product<W>, 1>>(product, weights, stream);
    } else if (product.rows <= kFewRows) {
      LaunchTiles<FewRows<Product<W>, 2>>(product, weights, stream);
    } else {
      LaunchTiles<ManyRows<Product<W>, 4>>(product, weights, stream);
    }
  });
}

}  // namespace pagemill::gpu
