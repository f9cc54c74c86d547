#include "cuda/ops/linear/tensor_cores.h"

#include <cstdint>

#include "cuda/gpu_launch.h"
#include "cuda/gpu_vendor.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/linear/bf16_product.h"
#include "cuda/ops/linear/tensor_core_tiles.h"
#include "cuda/ops/linear/weights.h"

namespace pagemill::gpu {
namespace {

// Block (outputs, rows).
template <typename W, typename Tile>
PAGEMILL_KERNEL_OF(Tile::kThreads, Tile::kBlocks) MultiplyTile(Bf16ProductRows product, W w) {
  Tile::Multiply(Bf16Product<W>(product, w), int64_t{BlockIndex().x} * Tile::kOutputs,
                 int64_t{BlockIndex().y} * Tile::kRows);
}

template <typename Tile, typename W>
void LaunchTiles(const Bf16ProductRows& product, const W& w, device::Stream& stream) {
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
  const Bf16ProductRows product = Bf16ProductRows::Of(x, w, bias, y);
  WithWeights(w, [&]<typename W>(const W& weights) {
    if (product.rows <= 8) {
      LaunchTiles<FewRows<Bf16Product<W>, 1>>(product, weights, stream);
    } else if (product.rows <= kFewTensorCoreRows) {
      LaunchTiles<FewRows<Bf16Product<W>, 2>>(product, weights, stream);
    } else {
      LaunchTiles<ManyRows<Bf16Product<W>, 4>>(product, weights, stream);
    }
  });
}

}  // namespace pagemill::gpu
