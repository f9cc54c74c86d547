#include "cuda/ops/linear/cublas_lt_product.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "cuda/device/cublas_lt.h"
#include "cuda/device/gpu_stream.h"
#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/gpu_vendor.h"
#include "cuda/ops/linear/awq_tiles.h"
#include "cuda/ops/linear/cublas_lt_results.h"
#include "cuda/ops/linear/joined_products.h"
#include "cuda/ops/linear/tensor_core_tiles.h"
#include "cuda/ops/linear/weights.h"

namespace pagemill::gpu {
namespace {

// A thread for kWeightsAtOnce columns of a row, kPasses times. Neighbours have what is next in
// memory, columns or rows; either way a warp stores whole sectors, of 32 bytes.
template <typename W>
struct RoundingBlock {
  static constexpr int kThreads = 128;
  static constexpr int kPasses = 4;
  static constexpr int kRows = W::kLiesInRows ? 1 : 16;
  static constexpr int kStep = kThreads / kRows * kWeightsAtOnce;  // columns of a pass
  static constexpr int kColumns = kStep * kPasses;
};

// Block (rows, columns): `to` [rows, columns] becomes rows of W from `first_row` on, in bf16.
template <typename W>
PAGEMILL_KERNEL RoundWeights(W w, int64_t first_row, int64_t rows, int64_t columns,
                             BFloat16* to) {
  using Block = RoundingBlock<W>;
  const int thread = static_cast<int>(ThreadIndex().x);
  const int64_t row = int64_t{BlockIndex().x} * Block::kRows + thread % Block::kRows;
  if (row >= rows) return;
  const typename W::Row of_w = w.At(/*matrix=*/0, first_row + row);
  const int64_t first = int64_t{BlockIndex().y} * Block::kColumns +
                        thread / Block::kRows * kWeightsAtOnce;
  PAGEMILL_UNROLL
  for (int pass = 0; pass < Block::kPasses; ++pass) {
    const int64_t column = first + pass * Block::kStep;
    if (column >= columns) return;
    float values[kWeightsAtOnce];
    of_w.Load(column, kWeightsAtOnce, values);
    if constexpr (W::kHasFactors) {
      PAGEMILL_UNROLL
      for (int i = 0; i < kWeightsAtOnce; ++i) values[i] *= of_w.Factor();
    }
    Bf16Columns rounded;
    PAGEMILL_UNROLL
    for (int i = 0; i < kWeightsAtOnce / 2; ++i) {
      rounded.pairs[i] = PackBFloat16(values[2 * i], values[2 * i + 1]);
    }
    *reinterpret_cast<Bf16Columns*>(to + row * columns + column) = rounded;
  }
}

// How a product is divided, and its workspace, which grows with `rows`.
struct Division {
  int64_t outputs = 0;       // of a slice
  int64_t weight_bytes = 0;  // 0: weights are read as they are
  SumsOfSlices sums;

  static Division Of(int64_t rows, const TensorView& w, bool has_bias, const TensorView& y,
                     const CublasLtLimits& limits) {
    const int64_t outputs = w.shape[0];
    const int64_t row_bytes = w.shape[1] * static_cast<int64_t>(sizeof(BFloat16));
    Division division = {.outputs = outputs, .sums = {}};
    if (w.dtype != DType::kBF16) {
      const int64_t fitting = FittingSlice(outputs, limits.slice_bytes, row_bytes);
      const int64_t slices = (outputs + fitting - 1) / fitting;
      division.outputs =  // of equal slices
          std::min(outputs, RoundUp((outputs + slices - 1) / slices, kSliceUnit));
      division.weight_bytes = division.outputs * row_bytes;
    }
    division.sums =
        SumsOfSlices::Of(rows, division.outputs, NeedsSums(y, has_bias), limits.slice_bytes);
    return division;
  }
};

// True if the library multiplies this many rows of x.
bool AreMany(int64_t rows, const TensorView& w, const CublasLtLimits& limits) {
  return rows >= (w.dtype == DType::kBF16 ? limits.rows : limits.converted_rows);
}

// A call, in slices.
class SlicedProduct {
 public:
  SlicedProduct(const TensorView& x, const TensorView& w, const float* bias, const TensorView& y,
                std::byte* workspace, GpuStream& stream, const CublasLtLimits& limits)
      : x_(RowsOf<const BFloat16>(x)),
        w_(w),
        bias_(bias),
        y_(y),
        rows_(x.shape[0]),
        division_(Division::Of(rows_, w, bias != nullptr, y, limits)),
        workspace_(AlignedWorkspace(workspace)),
        weights_(reinterpret_cast<BFloat16*>(workspace_ + kCublasLtWorkspaceBytes)),
        sums_{reinterpret_cast<float*>(workspace_ + kCublasLtWorkspaceBytes +
                                       division_.weight_bytes),
              division_.sums.stride},
        stream_(stream) {}

  // False if the library has no algorithm for a slice.
  bool Run() {
    const int64_t outputs = w_.shape[0];
    for (int64_t first = 0; first < outputs; first += division_.outputs) {
      const int64_t count = std::min(division_.outputs, outputs - first);
      const Rows<const BFloat16> weights = WeightsOf(first, count);
      for (int64_t row = 0; row < rows_; row += division_.sums.rows) {
        const int64_t rows = std::min(division_.sums.rows, rows_ - row);
        if (!MultiplyPart({.y = y_,
                           .first_row = row,
                           .first_output = first,
                           .bias = bias_,
                           .sums = sums_},
                          {.x = x_.data + row * x_.stride,
                           .w = weights.data,
                           .rows = rows,
                           .outputs = count,
                           .columns = w_.shape[1],
                           .x_stride = x_.stride,
                           .w_stride = weights.stride,
                           .workspace = workspace_},
                          stream_)) {
          return false;
        }
      }
    }
    return true;
  }

 private:
  Rows<const BFloat16> WeightsOf(int64_t first, int64_t count) {
    const int64_t columns = w_.shape[1];
    if (division_.weight_bytes == 0) {
      const auto all = RowsOf<const BFloat16>(w_);
      return {all.data + first * all.stride, all.stride};
    }
    const bool are_shaped = WithShapedMatrix(w_, [&]<typename W>(const W& weights) {
      using Block = RoundingBlock<W>;
      Launch(stream_,
             {.blocks = {DivideUp(count, Block::kRows), DivideUp(columns, Block::kColumns)},
              .threads = {Block::kThreads}},
             RoundWeights<W>, weights, first, count, columns, weights_);
    });
    PAGEMILL_CHECK(are_shaped);
    return {weights_, columns};
  }

  const Rows<const BFloat16> x_;
  const TensorView& w_;
  const float* const bias_;
  const TensorView& y_;
  const int64_t rows_;
  const Division division_;
  std::byte* const workspace_;
  BFloat16* const weights_;
  const Rows<float> sums_;
  GpuStream& stream_;
};

}  // namespace

bool FitsCublasLt(const device::Capabilities& caps, const TensorView& x, const TensorView& w) {
  return FitsTensorCores(caps, x, w) && CublasLtLibrary::Open().ok();
}

int64_t CublasLtProductBytes(const TensorView& x, const TensorView& w, bool has_bias,
                             const TensorView& y, const CublasLtLimits& limits) {
  const int64_t rows = x.shape[0];
  if (!AreMany(rows, w, limits)) return 0;
  const Division division = Division::Of(rows, w, has_bias, y, limits);
  return kCublasLtWorkspaceAlignment + kCublasLtWorkspaceBytes + division.weight_bytes +
         division.sums.bytes;
}

void MultiplyByCublasLt(const TensorView& x, std::span<const Product> products,
                        std::byte* workspace, device::Stream& stream,
                        const CublasLtLimits& limits) {
  const auto multiply = [&](const Product& product) {
    const auto& [w, bias, y] = product;
    const bool is_aligned = reinterpret_cast<uintptr_t>(y.data) % 16 == 0;
    return is_aligned && AreMany(x.shape[0], w, limits) &&
           SlicedProduct(x, w, bias, y, workspace, static_cast<GpuStream&>(stream), limits).Run();
  };
  std::byte* const results = AlignedWorkspace(workspace) + kCublasLtWorkspaceBytes;
  std::vector<Product> left;
  for (JoinedProducts& joined : JoinedProducts::Of(x.shape[0], products, DType::kBF16)) {
    if (joined.AreJoined() && multiply(joined.ProductIn(results))) {
      joined.Split(results, stream);
      continue;
    }
    std::ranges::copy_if(joined.products(), std::back_inserter(left),
                         [&](const Product& product) { return !multiply(product); });
  }
  MultiplyOnTensorCores(x, left, stream);
}

}  // namespace pagemill::gpu
