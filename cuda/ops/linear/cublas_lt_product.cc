#include "cuda/ops/linear/cublas_lt_product.h"

#include <algorithm>
#include <vector>

#include "cuda/device/cublas_lt.h"
#include "cuda/device/gpu_stream.h"
#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/gpu_vendor.h"
#include "cuda/ops/linear/tensor_core_tiles.h"
#include "cuda/ops/linear/weights.h"

namespace pagemill::gpu {
namespace {

// A thread for kWeightsAtOnce columns of a row, kPasses times. Neighbours have what is next in
// memory: columns, or rows.
template <typename W>
struct RoundingBlock {
  static constexpr int kThreads = 128;
  static constexpr int kPasses = 4;
  static constexpr int kRows = W::kLiesInRows ? 1 : 32;
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

// A block for a row.
template <typename T>
PAGEMILL_KERNEL AddBias(Rows<const float> sums, const float* bias, Rows<T> y, int64_t outputs) {
  const int64_t row = BlockIndex().x;
  for (int64_t m = ThreadIndex().x; m < outputs; m += BlockSize().x) {
    y[row][m] = FromFloat<T>(sums[row][m] + bias[m]);
  }
}

// Outputs and rows of slices are a multiple of it, or all.
constexpr int64_t kSliceUnit = 128;

int64_t RoundUp(int64_t count, int64_t unit) { return (count + unit - 1) / unit * unit; }

// The most that fit, of those that there are.
int64_t FittingSlice(int64_t total, int64_t slice_bytes, int64_t bytes_of_one) {
  const int64_t fitting = slice_bytes / bytes_of_one / kSliceUnit * kSliceUnit;
  return std::min(total, std::max(fitting, kSliceUnit));
}

// How a product is divided, and its workspace, which grows with `rows`.
struct Division {
  int64_t outputs = 0, rows = 0;  // of a slice
  int64_t weight_bytes = 0;       // 0: weights are read as they are
  int64_t sum_stride = 0;         // elements; 0: results are written as they are
  int64_t sum_bytes = 0;

  static Division Of(int64_t rows, const TensorView& w, bool has_bias, const TensorView& y,
                     const CublasLtLimits& limits) {
    constexpr int64_t kBf16Bytes = sizeof(BFloat16), kSumBytes = sizeof(float);
    const int64_t outputs = w.shape[0], row_bytes = w.shape[1] * kBf16Bytes;
    Division division = {.outputs = outputs, .rows = rows};
    if (w.dtype != DType::kBF16) {
      const int64_t fitting = FittingSlice(outputs, limits.slice_bytes, row_bytes);
      const int64_t slices = (outputs + fitting - 1) / fitting;
      division.outputs =  // of equal slices
          std::min(outputs, RoundUp((outputs + slices - 1) / slices, kSliceUnit));
      division.weight_bytes = division.outputs * row_bytes;
    }
    if (has_bias && y.dtype != DType::kF32) {
      division.sum_stride = RoundUp(division.outputs, 8);
      division.rows = FittingSlice(rows, limits.slice_bytes, division.sum_stride * kSumBytes);
      division.sum_bytes = division.rows * division.sum_stride * kSumBytes;
    }
    return division;
  }
};

// True if the library multiplies this many rows of x.
bool AreMany(int64_t rows, const TensorView& w, const CublasLtLimits& limits) {
  return rows >= (w.dtype == DType::kBF16 ? limits.rows : limits.converted_rows);
}

// The first address in the workspace at which the library's may begin.
std::byte* Aligned(std::byte* workspace) {
  const auto misalign = reinterpret_cast<uintptr_t>(workspace) % kCublasLtWorkspaceAlignment;
  return misalign == 0 ? workspace : workspace + (kCublasLtWorkspaceAlignment - misalign);
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
        workspace_(Aligned(workspace)),
        weights_(reinterpret_cast<BFloat16*>(workspace_ + kCublasLtWorkspaceBytes)),
        sums_{reinterpret_cast<float*>(workspace_ + kCublasLtWorkspaceBytes +
                                       division_.weight_bytes),
              division_.sum_stride},
        stream_(stream) {}

  // False if the library has no algorithm for a slice.
  bool Run() {
    const int64_t outputs = w_.shape[0];
    for (int64_t first = 0; first < outputs; first += division_.outputs) {
      const int64_t count = std::min(division_.outputs, outputs - first);
      const Rows<const BFloat16> weights = WeightsOf(first, count);
      for (int64_t row = 0; row < rows_; row += division_.rows) {
        if (!Multiply(row, std::min(division_.rows, rows_ - row), weights, first, count)) {
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
    const bool are_shaped = WithShapedWeights(w_, [&]<typename W>(const W& weights) {
      using Block = RoundingBlock<W>;
      Launch(stream_,
             {.blocks = {DivideUp(count, Block::kRows), DivideUp(columns, Block::kColumns)},
              .threads = {Block::kThreads}},
             RoundWeights<W>, weights, first, count, columns, weights_);
    });
    PAGEMILL_CHECK(are_shaped);
    return {weights_, columns};
  }

  bool Multiply(int64_t first_row, int64_t rows, const Rows<const BFloat16>& weights,
                int64_t first_output, int64_t outputs) {
    const bool is_wide = y_.dtype == DType::kF32;
    const Rows<BFloat16> all = RowsOf<BFloat16>(y_);
    const Rows<float> all_wide = RowsOf<float>(y_);
    const Rows<BFloat16> y = {all.data + first_row * all.stride + first_output, all.stride};
    const Rows<float> wide_y = {all_wide.data + first_row * all_wide.stride + first_output,
                                all_wide.stride};
    const bool has_sums = division_.sum_bytes > 0;
    const Rows<float> sums = has_sums ? sums_ : wide_y;
    const bool in_f32 = has_sums || is_wide;
    if (!stream_.Multiply({.x = x_.data + first_row * x_.stride,
                           .w = weights.data,
                           .y = in_f32 ? static_cast<void*>(sums.data) : y.data,
                           .rows = rows,
                           .outputs = outputs,
                           .columns = w_.shape[1],
                           .x_stride = x_.stride,
                           .w_stride = weights.stride,
                           .y_stride = in_f32 ? sums.stride : y.stride,
                           .wide = in_f32,
                           .workspace = workspace_})) {
      return false;
    }
    if (bias_ == nullptr) return true;
    const auto add_bias = [&]<typename T>(const Rows<T>& to) {
      Launch(stream_,
             {.blocks = {static_cast<uint32_t>(rows)}, .threads = {BlockThreads(outputs, 1, 256)}},
             AddBias<T>, Rows<const float>{sums.data, sums.stride}, bias_ + first_output, to,
             outputs);
    };
    if (is_wide) {
      add_bias(wide_y);
    } else {
      add_bias(y);
    }
    return true;
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
         division.sum_bytes;
}

void MultiplyByCublasLt(const TensorView& x, std::span<const Product> products,
                        std::byte* workspace, device::Stream& stream,
                        const CublasLtLimits& limits) {
  std::vector<Product> left;
  for (const Product& product : products) {
    const auto& [w, bias, y] = product;
    const bool is_aligned = reinterpret_cast<uintptr_t>(y.data) % 16 == 0;
    if (is_aligned && AreMany(x.shape[0], w, limits) &&
        SlicedProduct(x, w, bias, y, workspace, static_cast<GpuStream&>(stream), limits).Run()) {
      continue;
    }
    left.push_back(product);
  }
  MultiplyOnTensorCores(x, left, stream);
}

}  // namespace pagemill::gpu
