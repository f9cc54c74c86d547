#include "cuda/ops/linear/int8_tensor_cores.h"

#include <cstdint>

#include "cc/ops/linear/linear.h"
#include "cc/ops/quantized/quantized.h"
#include "cuda/gpu_launch.h"
#include "cuda/gpu_reduce.h"
#include "cuda/gpu_rows.h"
#include "cuda/gpu_vendor.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/linear/rounding_scale.h"
#include "cuda/ops/linear/tensor_core_tiles.h"
#include "cuda/ops/linear/weights.h"

namespace pagemill::gpu {
namespace {

constexpr int kFewRows = 32;  // of x, up to which warps share K

int64_t PaddedColumns(int64_t columns) {
  return (columns + kTensorCoreColumns - 1) / kTensorCoreColumns * kTensorCoreColumns;
}

// A block for each row; `rounded` has zeros up to a multiple of kTensorCoreColumns.
template <typename T>
PAGEMILL_KERNEL RoundRow(Rows<const T> x, int64_t columns, Rows<uint8_t> rounded, float* scales) {
  const T* const from = x[BlockIndex().x];
  const LargerMagnitude larger;
  float largest = 0;
  for (int64_t k = ThreadIndex().x; k < columns; k += BlockSize().x) {
    largest = larger(largest, ToFloat(from[k]));
  }
  const auto scale = RoundingScale::Of(BlockReduce(largest, larger), /*largest_number=*/127);
  if (ThreadIndex().x == 0) scales[BlockIndex().x] = scale.scale;
  for (int64_t k = ThreadIndex().x; k < rounded.stride; k += BlockSize().x) {
    // In this sum the last bit is 1: it rounds to nearest even.
    const float value = k < columns ? ToFloat(from[k]) * scale.inverse : 0;
    rounded[BlockIndex().x][k] = static_cast<uint8_t>(FloatToBits(value + 0x1.8p23f));
  }
}

// Parameters of a product; the emulation checks `data`, rows of integers.
template <typename T>
struct ProductRows {
  const uint8_t* data;
  int64_t row_bytes;
  const float* scales;  // of rows
  const float* bias;
  Rows<T> y;
  int64_t rows, outputs, columns;  // N, M, K
};

// As tensor_core_tiles.h has it.
template <typename T>
struct Product : ProductRows<T> {
  using W = ScaledWeights<DType::kI8>;
  using Columns = Int8Columns;
  using Sum = int32_t;

  PAGEMILL_DEVICE Product(const ProductRows<T>& of, const W& weights)
      : ProductRows<T>(of), w(weights) {}

  PAGEMILL_DEVICE const Columns* FirstOfX() const {
    return reinterpret_cast<const Columns*>(this->data);
  }
  PAGEMILL_DEVICE const Columns* RowOfX(int64_t row) const {
    return reinterpret_cast<const Columns*>(this->data + row * this->row_bytes);
  }
  PAGEMILL_DEVICE W::Row RowOfW(int64_t output) const { return w.At(/*matrix=*/0, output); }
  PAGEMILL_DEVICE Columns LoadW(const W::Row& row, int64_t first) const {
    const int64_t left = this->columns - first;
    const auto bytes =
        row.LoadBytes(first, left < kWeightsAtOnce ? static_cast<int>(left) : kWeightsAtOnce);
    return {{bytes.words[0], bytes.words[1]}};
  }
  struct Target {
    T* y;
    float scale;  // of the row of x
  };
  PAGEMILL_DEVICE Target TargetOf(int64_t row) const { return {this->y[row], this->scales[row]}; }
  PAGEMILL_DEVICE void Store(const Target& to, int64_t output, Sum sum) const {
    float value = static_cast<float>(sum) * (RowOfW(output).Factor() * to.scale);
    if (this->bias != nullptr) value += this->bias[output];
    to.y[output] = FromFloat<T>(value);
  }

  W w;
};

// Block (outputs, rows).
template <typename T, typename Tile>
PAGEMILL_KERNEL_OF(Tile::kThreads, Tile::kBlocks)
MultiplyTile(ProductRows<T> product, ScaledWeights<DType::kI8> w) {
  Tile::Multiply(Product<T>(product, w), int64_t{BlockIndex().x} * Tile::kOutputs,
                 int64_t{BlockIndex().y} * Tile::kRows);
}

template <typename T, typename Tile>
void LaunchTiles(const ProductRows<T>& product, const ScaledWeights<DType::kI8>& w,
                 device::Stream& stream) {
  Launch(stream,
         {.blocks = {DivideUp(product.outputs, Tile::kOutputs),
                     DivideUp(product.rows, Tile::kRows)},
          .threads = {Tile::kThreads}},
         MultiplyTile<T, Tile>, product, w);
}

// Where the scales of rounded rows are.
int64_t ScalesOffset(int64_t rows, int64_t columns) { return rows * PaddedColumns(columns); }

}  // namespace

bool FitsInt8TensorCores(const device::Capabilities& caps, const TensorView& w) {
  const int64_t columns = w.shape[static_cast<size_t>(w.rank - 1)];
  return HasTensorCores(caps) && ops::IsScaled(w) && w.dtype == DType::kI8 &&
         w.parts->format.block_columns >= columns && columns <= ops::kMaxInt8K;
}

int64_t RoundedRowsBytes(int64_t rows, int64_t columns) {
  return ScalesOffset(rows, columns) + rows * static_cast<int64_t>(sizeof(float));
}

void RoundRows(const TensorView& x, int64_t columns, std::byte* rounded, device::Stream& stream) {
  const int64_t rows = x.shape[0];
  const Rows<uint8_t> integers = {reinterpret_cast<uint8_t*>(rounded), PaddedColumns(columns)};
  auto* const scales = reinterpret_cast<float*>(rounded + ScalesOffset(rows, columns));
  WithActType(x.dtype, [&]<typename T>(T) {
    Launch(stream,
           {.blocks = {static_cast<uint32_t>(rows)}, .threads = {BlockThreads(columns, 8, 256)}},
           RoundRow<T>, RowsOf<const T>(x), columns, integers, scales);
  });
}

void MultiplyInInt8(const std::byte* rounded, int64_t rows, const TensorView& w, const float* bias,
                    const TensorView& y, device::Stream& stream) {
  const int64_t columns = w.shape[1];
  const auto weights = ScaledWeights<DType::kI8>::Of(w);
  WithActType(y.dtype, [&]<typename T>(T) {
    const ProductRows<T> product = {
        .data = reinterpret_cast<const uint8_t*>(rounded),
        .row_bytes = PaddedColumns(columns),
        .scales = reinterpret_cast<const float*>(rounded + ScalesOffset(rows, columns)),
        .bias = bias,
        .y = RowsOf<T>(y),
        .rows = rows,
        .outputs = w.shape[0],
        .columns = columns};
    if (rows <= 8) {
      LaunchTiles<T, FewRows<Product<T>, 1>>(product, weights, stream);
    } else if (rows <= kFewRows) {
      LaunchTiles<T, FewRows<Product<T>, 2>>(product, weights, stream);
    } else {
      LaunchTiles<T, ManyRows<Product<T>, 4>>(product, weights, stream);
    }
  });
}

}  // namespace pagemill::gpu
