#include "cuda/ops/linear/tensor_cores.h"

#include <cstdint>
#include <optional>

#include "cuda/gpu_launch.h"
#include "cuda/gpu_vendor.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/linear/awq_tiles.h"
#include "cuda/ops/linear/bf16_product.h"
#include "cuda/ops/linear/staged_rows.h"
#include "cuda/ops/linear/tensor_core_tiles.h"
#include "cuda/ops/linear/weights.h"

namespace pagemill::gpu {
namespace {

// Matrices that share a launch: alone, a small one leaves multiprocessors without blocks.
constexpr int kMatricesOfLaunch = 4;

template <typename W>
struct MatrixGroup {
  Bf16ProductRows products[kMatricesOfLaunch];  // all of the same x
  W weights[kMatricesOfLaunch];
  uint32_t first_block[kMatricesOfLaunch];  // of each; those behind the last have none
  int count = 0;

  template <typename Visit>
  void ForData(const Visit& visit) const {
    for (int i = 0; i < count; ++i) {
      visit(products[i].data);
      visit(weights[i].data);
    }
  }

  // The matrix of which a block multiplies outputs.
  PAGEMILL_DEVICE int MatrixAt(uint32_t block) const {
    int matrix = 0;
    PAGEMILL_UNROLL
    for (int i = 1; i < kMatricesOfLaunch; ++i) matrix += i < count && block >= first_block[i] ? 1 : 0;
    return matrix;
  }
};

// Brings the beginning of each quarter of K of the block's weights into the GPU's cache: the block
// has nothing else to do while it waits for x.
template <typename Tile, typename W>
PAGEMILL_DEVICE void PrefetchWeights(const Bf16Product<W>& product, int64_t first_output) {
  constexpr int kLineBytes = 128;
  // Four or eight made a step of one request 2 or 10 % longer on an H200.
  constexpr int kParts = 4, kLines = 2;  // of each part
  constexpr int kThreadsOfRow = Tile::kThreads / Tile::kOutputs;
  const int thread = static_cast<int>(ThreadIndex().x);
  const int64_t output = first_output + thread / kThreadsOfRow;
  const int64_t bytes = product.w.BytesOfRow(product.columns);
  if (output >= product.outputs || bytes < kParts * kLines * kLineBytes) return;
  const uint8_t* const row = product.RowOfW(output).bytes();
  for (int line = thread % kThreadsOfRow; line < kParts * kLines; line += kThreadsOfRow) {
    PrefetchLine(row + bytes * (line % kParts) / kParts + line / kParts * kLineBytes);
  }
}

// Block (outputs of all matrices, rows).
template <typename W, typename Tile>
PAGEMILL_KERNEL_OF(Tile::kThreads, Tile::kBlocks) MultiplyTile(MatrixGroup<W> group) {
  LetNextBegin();
  const int matrix = group.MatrixAt(BlockIndex().x);
  const Bf16Product<W> product(group.products[matrix], group.weights[matrix]);
  const int64_t first_output =
      int64_t{BlockIndex().x - group.first_block[matrix]} * Tile::kOutputs;
  if constexpr (W::kLiesInRows && Tile::kSharesK) PrefetchWeights<Tile>(product, first_output);
  AwaitInputs();
  Tile::Multiply(product, first_output, int64_t{BlockIndex().y} * Tile::kRows);
}

template <typename Tile, typename W>
void LaunchTiles(MatrixGroup<W> group, device::Stream& stream) {
  uint32_t blocks = 0;
  for (int i = 0; i < group.count; ++i) {
    group.first_block[i] = blocks;
    blocks += DivideUp(group.products[i].outputs, Tile::kOutputs);
  }
  Launch(stream,
         {.blocks = {blocks, DivideUp(group.products[0].rows, Tile::kRows)},
          .threads = {Tile::kThreads},
          .shared_bytes = Tile::kSharedBytes,
          .early = true},
         MultiplyTile<W, Tile>, group);
}

template <typename W>
void LaunchGroup(const MatrixGroup<W>& group, device::Stream& stream) {
  const int64_t rows = group.products[0].rows;
  // Others have spans of weights in registers, or two tiles of outputs with sums for each row.
  constexpr int kMostTiles = W::kLiesInRows ? 8 : 4;
  if (rows <= 8) {
    LaunchTiles<FewRows<Bf16Product<W>, 1>>(group, stream);
  } else if (rows <= 16) {
    LaunchTiles<FewRows<Bf16Product<W>, 2>>(group, stream);
  } else if (rows <= kFewTensorCoreRows) {
    LaunchTiles<FewRows<Bf16Product<W>, kMostTiles>>(group, stream);
  } else {
    LaunchTiles<ManyRowsOf<Bf16Product<W>, 4>>(group, stream);
  }
}

// The weights, if kernels read them as W.
template <typename W>
std::optional<W> ReadAs(const TensorView& w) {
  std::optional<W> read;
  WithShapedMatrix(w, [&]<typename Other>(const Other& weights) {
    if constexpr (std::is_same_v<W, Other>) read = weights;
  });
  return read;
}

}  // namespace

bool FitsTensorCores(const device::Capabilities& caps, const TensorView& x, const TensorView& w) {
  return HasTensorCores(caps) && FitsBf16Product(x, w);
}

bool AreReadOnTensorCores(const TensorView& w) {
  if (w.parts == nullptr && w.dtype == DType::kBF16) return HasAlignedRows(w);
  return WithShapedMatrix(w, [](const auto&) {});
}

void MultiplyOnTensorCores(const TensorView& x, std::span<const Product> products,
                           device::Stream& stream) {
  while (!products.empty()) {
    size_t taken = 0;
    const bool are_shaped = WithShapedMatrix(products[0].w, [&]<typename W>(const W&) {
      MatrixGroup<W> group = {};
      while (taken < products.size() && group.count < kMatricesOfLaunch) {
        const auto& [w, bias, y] = products[taken];
        const std::optional<W> weights = ReadAs<W>(w);
        if (!weights) break;
        group.products[group.count] = Bf16ProductRows::Of(x, w, bias, y);
        group.weights[group.count] = *weights;
        ++group.count;
        ++taken;
      }
      LaunchGroup(group, stream);
    });
    PAGEMILL_CHECK(are_shaped);
    products = products.subspan(taken);
  }
}

}  // namespace pagemill::gpu
