#include "cuda/ops/linear/cublas_lt_fp8.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "cc/ops/quantized/quantized.h"
#include "cuda/device/gpu_stream.h"
#include "cuda/gpu_launch.h"
#include "cuda/gpu_reduce.h"
#include "cuda/gpu_rows.h"
#include "cuda/gpu_vendor.h"
#include "cuda/ops/linear/joined_products.h"
#include "cuda/ops/linear/rounded_groups.h"
#include "cuda/ops/linear/rounding_scale.h"
#include "cuda/ops/linear/weights.h"

namespace pagemill::gpu {
namespace {

using Weights = ScaledWeights<DType::kF8E4M3>;

constexpr int64_t kBlock = kF8Columns;  // also rows of weights, of a scale of kBlocks
constexpr int kColumnsAtOnce = EightColumns::kCount;  // of a row of x
constexpr int64_t kRowsTogether = 4;  // of x: the library multiplies a multiple, with kBlocks
constexpr int64_t kFloatBytes = sizeof(float);

// The scales of rows of x; those of a slice of rows lie as [groups, rows].
struct ScalesOfX {
  float* data;
  int64_t rows, slice_rows, groups;

  PAGEMILL_DEVICE float& At(int64_t row, int64_t group) const {
    const int64_t first = row / slice_rows * slice_rows;
    const int64_t left = rows - first;
    const int64_t of_slice = left < slice_rows ? left : slice_rows;
    return data[first * groups + group * of_slice + row - first];
  }
};

// A block for a row.
PAGEMILL_KERNEL RoundRow(Rows<const BFloat16> x, int64_t columns, Rows<uint8_t> rounded,
                         ScalesOfX scales) {
  LetNextBegin();
  AwaitInputs();
  const int64_t row = BlockIndex().x;
  const int64_t first = int64_t{ThreadIndex().x} * kColumnsAtOnce;
  const int64_t step = int64_t{BlockSize().x} * kColumnsAtOnce;
  float largest = 0;
  for (int64_t k = first; k < columns; k += step) {
    largest = LargerMagnitude()(largest, EightColumns::Load(x[row] + k).Largest());
  }
  const auto scale = RoundingScale::Of(BlockReduce(largest, LargerMagnitude()), kLargestF8E4M3);
  if (ThreadIndex().x == 0) scales.At(row, /*group=*/0) = scale.scale;
  for (int64_t k = first; k < columns; k += step) {
    EightColumns::Load(x[row] + k).StoreRounded(scale.inverse, rounded[row] + k);
  }
}

// A thread for each of `to` [units, stride], the scales of the first of `unit_rows` rows each.
PAGEMILL_KERNEL ArrangeScales(Weights w, int64_t unit_rows, int64_t units, int64_t stride,
                              float* to) {
  const int64_t i = int64_t{BlockIndex().x} * BlockSize().x + ThreadIndex().x;
  if (i >= units * stride) return;
  const int64_t block = i / stride * unit_rows / w.block_rows, column = i % stride;
  to[i] = column < w.row_scales ? w.scales[block * w.row_scales + column] : 0;
}

std::optional<ProductScales> ScalesOf(const TensorView& w) {
  if (!ops::IsScaled(w) || w.dtype != DType::kF8E4M3) return std::nullopt;
  const QuantizedFormat& format = w.parts->format;
  if (format.block_columns >= w.shape[1]) return ProductScales::kRows;
  if (format.block_rows == kBlock && format.block_columns == kBlock) return ProductScales::kBlocks;
  return std::nullopt;
}

// The scales of weights as the library reads them: [units, stride].
struct ArrangedScales {
  int64_t unit_rows, units, stride;

  static ArrangedScales Of(ProductScales scales, int64_t outputs, int64_t groups) {
    if (scales == ProductScales::kRows) return {1, outputs, 1};
    return {kBlock, DivideUp(outputs, kBlock), RoundUp(groups, 4)};
  }
  // True if those of w already are.
  bool Are(const Weights& w) const {
    return reinterpret_cast<uintptr_t>(w.scales) % 16 == 0 && w.row_scales == stride &&
           (units == 1 || w.block_rows == unit_rows);
  }
};

int64_t RowsOfLibrary(int64_t rows, ProductScales scales, const CublasLtLimits& limits) {
  if (rows < limits.rows) return 0;
  return scales == ProductScales::kRows ? rows : rows / kRowsTogether * kRowsTogether;
}

// The rows from `first` on.
TensorView RowsFrom(TensorView view, int64_t first) {
  view.data = static_cast<std::byte*>(view.data) + first * view.row_stride_bytes;
  view.shape[0] -= first;
  return view;
}

// The products of a call.
class Fp8Call {
 public:
  Fp8Call(const Fp8Workspace& layout, std::byte* workspace, GpuStream& stream)
      : layout_(layout),
        sums_(layout.sums()),
        workspace_(AlignedWorkspace(workspace)),
        rounded_{reinterpret_cast<uint8_t*>(workspace_ + layout.x_offset()), layout.columns()},
        x_scales_{FloatsAt(layout.x_scales_offset()), layout.rows(), sums_.rows, layout.groups()},
        stream_(stream) {}

  void Round(const TensorView& x) {
    const int64_t columns = layout_.columns();
    const auto rows = static_cast<uint32_t>(layout_.rows());
    if (layout_.scales() == ProductScales::kRows) {
      const uint32_t threads = BlockThreads(columns, kColumnsAtOnce, 256);
      Launch(stream_, {.blocks = {rows}, .threads = {threads}, .early = true}, RoundRow,
             RowsOf<const BFloat16>(x), columns, rounded_, x_scales_);
    } else {
      LaunchRoundGroups(RowsOf<const BFloat16>(x), rows, columns, rounded_, x_scales_, stream_);
    }
  }

  // False if the library cannot multiply it.
  bool Multiply(const Product& product) {
    const auto w = Weights::Of(product.w);
    if (!HasAlignedRows(ops::PartOf(product.w, product.w.parts->values, 0)) ||
        !HasAlignedRows(product.y)) {
      return false;
    }
    const int64_t outputs = product.w.shape[0];
    const float* const w_scales = ScalesOfWeights(w, outputs);
    for (int64_t row = 0; row < layout_.rows(); row += sums_.rows) {
      if (!MultiplyPart({.y = product.y,
                         .first_row = row,
                         .bias = product.bias,
                         .sums = {FloatsAt(layout_.sums_offset()), sums_.stride}},
                        {.x = rounded_.data + row * rounded_.stride,
                         .w = w.data,
                         .rows = std::min(sums_.rows, layout_.rows() - row),
                         .outputs = outputs,
                         .columns = layout_.columns(),
                         .x_stride = rounded_.stride,
                         .w_stride = w.row_bytes,
                         .scales = layout_.scales(),
                         .x_scales = x_scales_.data + row * x_scales_.groups,
                         .w_scales = w_scales,
                         .workspace = workspace_},
                        stream_)) {
        return false;
      }
    }
    return true;
  }

 private:
  float* FloatsAt(int64_t offset) const { return reinterpret_cast<float*>(workspace_ + offset); }

  const float* ScalesOfWeights(const Weights& w, int64_t outputs) {
    const auto arranged = ArrangedScales::Of(layout_.scales(), outputs, layout_.groups());
    if (arranged.Are(w)) return w.scales;
    constexpr uint32_t kThreads = 256;
    float* const to = FloatsAt(layout_.w_scales_offset());
    Launch(stream_,
           {.blocks = {DivideUp(arranged.units * arranged.stride, kThreads)},
            .threads = {kThreads}},
           ArrangeScales, w, arranged.unit_rows, arranged.units, arranged.stride, to);
    return to;
  }

  const Fp8Workspace& layout_;
  const SumsOfSlices sums_;
  std::byte* const workspace_;
  const Rows<uint8_t> rounded_;
  const ScalesOfX x_scales_;
  GpuStream& stream_;
};

}  // namespace

bool FitsCublasLtFp8(const device::Capabilities& caps, const TensorView& x, const TensorView& w) {
  if (!FitsCublasLt(caps, x, w) || !ScalesOf(w)) return false;
  return CublasLtLibrary::Open()->HasScales(caps.gpu.compute_major, caps.gpu.compute_minor);
}

Fp8Workspace::Fp8Workspace(const TensorView& x, const TensorView& w, const CublasLtLimits& limits)
    : scales_(*ScalesOf(w)),
      slice_bytes_(limits.slice_bytes),
      columns_(w.shape[1]),
      groups_(scales_ == ProductScales::kRows ? 1 : DivideUp(columns_, kBlock)),
      rows_(RowsOfLibrary(x.shape[0], scales_, limits)) {}

void Fp8Workspace::Add(const TensorView& w, bool has_bias, const TensorView& y) {
  const auto arranged = ArrangedScales::Of(scales_, w.shape[0], groups_);
  w_scales_ += arranged.units * arranged.stride;
  if (NeedsSums(y, has_bias)) most_summed_outputs_ = std::max(most_summed_outputs_, w.shape[0]);
}

SumsOfSlices Fp8Workspace::sums() const {
  return SumsOfSlices::Of(rows_, most_summed_outputs_, most_summed_outputs_ > 0, slice_bytes_);
}

int64_t Fp8Workspace::x_scales_offset() const {
  return x_offset() + RoundUp(rows_ * columns_, kCublasLtWorkspaceAlignment);
}

int64_t Fp8Workspace::w_scales_offset() const {
  return x_scales_offset() + RoundUp(rows_ * groups_ * kFloatBytes, kCublasLtWorkspaceAlignment);
}

int64_t Fp8Workspace::sums_offset() const {
  return w_scales_offset() + RoundUp(w_scales_ * kFloatBytes, kCublasLtWorkspaceAlignment);
}

int64_t Fp8Workspace::bytes() const {
  if (rows_ == 0) return 0;
  // Also of a call with fewer rows or outputs, whose slices may have more rows.
  const int64_t row_bytes = RoundUp(most_summed_outputs_, 8) * kFloatBytes;
  const int64_t of_sums =
      std::min(rows_ * row_bytes, std::max(slice_bytes_, kSliceUnit * row_bytes));
  return kCublasLtWorkspaceAlignment + sums_offset() + of_sums;
}

void MultiplyByCublasLtInFp8(const TensorView& x, std::span<const Product> products,
                             std::byte* workspace, device::Stream& stream,
                             const CublasLtLimits& limits) {
  if (products.empty()) return;
  Fp8Workspace layout(x, products[0].w, limits);
  for (const Product& product : products) layout.Add(product.w, product.bias != nullptr, product.y);
  std::vector<Product> left, of_last_rows;
  if (layout.rows() == 0) {
    left.assign(products.begin(), products.end());
  } else {
    Fp8Call call(layout, workspace, static_cast<GpuStream&>(stream));
    call.Round(x);
    std::byte* const results = AlignedWorkspace(workspace) + layout.sums_offset();
    const auto keep_last_rows = [&](const Product& product) {
      if (layout.rows() == x.shape[0]) return;
      of_last_rows.push_back({product.w, product.bias, RowsFrom(product.y, layout.rows())});
    };
    for (JoinedProducts& joined : JoinedProducts::Of(layout.rows(), products, DType::kF8E4M3)) {
      if (joined.AreJoined() && call.Multiply(joined.ProductIn(results))) {
        joined.Split(results, stream);
        std::ranges::for_each(joined.products(), keep_last_rows);
        continue;
      }
      for (const Product& product : joined.products()) {
        if (call.Multiply(product)) {
          keep_last_rows(product);
        } else {
          left.push_back(product);
        }
      }
    }
  }
  MultiplyOnTensorCores(RowsFrom(x, layout.rows()), of_last_rows, stream);
  MultiplyByCublasLt(x, left, workspace, stream, limits);
}

}  // namespace pagemill::gpu
