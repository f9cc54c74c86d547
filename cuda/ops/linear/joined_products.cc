#include "cuda/ops/linear/joined_products.h"

#include <algorithm>

#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/gpu_vendor.h"

namespace pagemill::gpu {
namespace {

constexpr size_t kMostJoined = 4;      // products
constexpr int64_t kFewOutputs = 4096;  // of a matrix that is joined to others
constexpr int64_t kUnit = 8;           // outputs are a multiple of it: rows of bf16 stay aligned
constexpr int kAtOnce = 4;             // columns of a row of results
constexpr uint32_t kThreads = 128;

// Where columns of joined results belong. The emulation checks `data`, the results.
template <typename From, typename To>
struct Parts {
  const From* data;
  int64_t outputs;
  int count;
  int64_t ends[kMostJoined];
  const float* biases[kMostJoined];
  Rows<To> to[kMostJoined];

  template <typename Visit>
  void ForData(const Visit& visit) const {
    visit(data);
    for (int i = 0; i < count; ++i) {
      if (biases[i] != nullptr) visit(biases[i]);
      visit(to[i].data);
    }
  }
};

// Block (row, columns).
template <typename From, typename To>
PAGEMILL_KERNEL SplitRow(Parts<From, To> parts) {
  LetNextBegin();
  AwaitInputs();
  const int64_t row = BlockIndex().x;
  const int64_t column = (int64_t{BlockIndex().y} * kThreads + ThreadIndex().x) * kAtOnce;
  if (column >= parts.outputs) return;
  const auto from = *reinterpret_cast<const Vector<From, kAtOnce>*>(
      parts.data + row * parts.outputs + column);
  int64_t begin = 0;
  PAGEMILL_UNROLL
  for (int i = 0; i < static_cast<int>(kMostJoined); ++i) {
    if (i >= parts.count) return;
    const int64_t end = parts.ends[i];
    if (column >= begin && column < end) {
      const float* const bias = parts.biases[i];
      Vector<To, kAtOnce> to;
      PAGEMILL_UNROLL
      for (int j = 0; j < kAtOnce; ++j) {
        const float value = ToFloat(from.values[j]);
        to.values[j] = FromFloat<To>(bias == nullptr ? value : value + bias[column - begin + j]);
      }
      *reinterpret_cast<Vector<To, kAtOnce>*>(parts.to[i][row] + (column - begin)) = to;
    }
    begin = end;
  }
}

int64_t OutputsOf(const Product& product) { return product.w.shape[0]; }

const std::byte* EndOf(const TensorView& matrix) {
  return static_cast<const std::byte*>(matrix.data) + matrix.shape[0] * matrix.row_stride_bytes;
}

// True if the rows of b are behind those of a, as one matrix has them.
bool FollowEachOther(const TensorView& a, const TensorView& b) {
  return a.rank == 2 && b.rank == 2 && a.dtype == b.dtype && a.shape[1] == b.shape[1] &&
         a.row_stride_bytes == b.row_stride_bytes && EndOf(a) == b.data;
}

bool WeightsFollowEachOther(const TensorView& a, const TensorView& b) {
  if (!HaveOneFormat(a, b)) return false;
  if (a.parts == nullptr) return FollowEachOther(a, b);
  return a.parts->format.layout == QuantizedLayout::kScaled &&
         a.shape[0] % a.parts->format.block_rows == 0 &&
         FollowEachOther(a.parts->values, b.parts->values) &&
         FollowEachOther(a.parts->scales, b.parts->scales);
}

// True if a matrix is worth joining to those in front of it.
bool HasFewOutputs(int64_t before, int64_t outputs) {
  return before < kFewOutputs || outputs < kFewOutputs;
}

// True if b may follow a.
bool AreJoinable(const Product& a, const Product& b) {
  return a.y.dtype == b.y.dtype && OutputsOf(a) % kUnit == 0 && OutputsOf(b) % kUnit == 0 &&
         HasAlignedRows(a.y) && HasAlignedRows(b.y) && WeightsFollowEachOther(a.w, b.w);
}

}  // namespace

std::vector<JoinedProducts> JoinedProducts::Of(int64_t rows, std::span<const Product> products,
                                               DType joined) {
  std::vector<JoinedProducts> all;
  while (!products.empty()) {
    size_t count = 1;
    int64_t outputs = OutputsOf(products[0]);
    const size_t most =
        rows <= kMostJoinedRows && products[0].w.dtype == joined ? kMostJoined : 1;
    while (count < std::min(most, products.size()) &&
           HasFewOutputs(outputs, OutputsOf(products[count])) &&
           AreJoinable(products[count - 1], products[count])) {
      outputs += OutputsOf(products[count++]);
    }
    all.push_back(JoinedProducts(rows, products.first(count)));
    products = products.subspan(count);
  }
  return all;
}

// Whatever is joined begins with some product, and has those behind it that are small enough.
int64_t JoinedProducts::Bytes(int64_t rows, std::span<const TensorView> ys) {
  int64_t most = 0;
  for (size_t first = 0; first < ys.size(); ++first) {
    int64_t outputs = ys[first].RowElements();
    const size_t end = std::min(ys.size(), first + kMostJoined);
    for (size_t i = first + 1; i < end && HasFewOutputs(outputs, ys[i].RowElements()); ++i) {
      outputs += ys[i].RowElements();
      most = std::max(most, outputs);
    }
  }
  return std::min(rows, kMostJoinedRows) * most * static_cast<int64_t>(sizeof(float));
}

// Sums of f32 if a bias is to be added before they are rounded.
TensorView JoinedProducts::ResultsAt(std::byte* results) const {
  int64_t outputs = 0;
  bool are_wide = false;
  for (const Product& product : products_) {
    outputs += OutputsOf(product);
    are_wide |= product.bias != nullptr || product.y.dtype == DType::kF32;
  }
  return TensorView::Dense(results, are_wide ? DType::kF32 : DType::kBF16, {rows_, outputs});
}

Product JoinedProducts::ProductIn(std::byte* results) {
  Product joined = {products_[0].w, /*bias=*/nullptr, ResultsAt(results)};
  joined.w.shape[0] = joined.y.shape[1];
  if (joined.w.parts == nullptr) return joined;
  parts_ = *joined.w.parts;
  parts_.values.shape[0] = joined.w.shape[0];
  parts_.scales.shape[0] = (joined.w.shape[0] + parts_.format.block_rows - 1) /
                           parts_.format.block_rows;
  joined.w.parts = &parts_;
  return joined;
}

void JoinedProducts::Split(const std::byte* results, device::Stream& stream) const {
  const TensorView joined = ResultsAt(const_cast<std::byte*>(results));
  const auto split = [&]<typename From, typename To>(From, To) {
    Parts<From, To> parts = {.data = joined.Data<const From>(),
                             .outputs = joined.shape[1],
                             .count = static_cast<int>(products_.size()),
                             .ends = {},
                             .biases = {},
                             .to = {}};
    int64_t end = 0;
    for (size_t i = 0; i < products_.size(); ++i) {
      parts.ends[i] = end += OutputsOf(products_[i]);
      parts.biases[i] = products_[i].bias;
      parts.to[i] = RowsOf<To>(products_[i].y);
    }
    Launch(stream,
           {.blocks = {static_cast<uint32_t>(rows_), DivideUp(joined.shape[1], kThreads * kAtOnce)},
            .threads = {kThreads},
            .early = true},
           SplitRow<From, To>, parts);
  };
  if (joined.dtype == DType::kBF16) return split(BFloat16{}, BFloat16{});
  if (products_[0].y.dtype == DType::kF32) return split(float{}, float{});
  split(float{}, BFloat16{});
}

}  // namespace pagemill::gpu
