#include "cuda/ops/linear/matrix_cores.h"

#include <cstdint>

#include "cuda/gpu_launch.h"
#include "cuda/gpu_vendor.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/linear/bf16_product.h"
#include "cuda/ops/linear/matrix_core_tiles.h"
#include "cuda/ops/linear/weights.h"

namespace pagemill::gpu {
namespace {

// Block (outputs, rows).
template <typename W, typename Tile>
PAGEMILL_KERNEL_OF(Tile::kThreads, Tile::kBlocks) MultiplyMatrices(Bf16ProductRows product, W w) {
  Tile::Multiply(Bf16Product<W>(product, w), int64_t{BlockIndex().x} * Tile::kOutputs,
                 int64_t{BlockIndex().y} * Tile::kRows);
}

template <typename Tile, typename W>
void LaunchTiles(const Bf16ProductRows& product, const W& w, device::Stream& stream) {
  Launch(stream,
         {.blocks = {DivideUp(product.outputs, Tile::kOutputs),
                     DivideUp(product.rows, Tile::kRows)},
          .threads = {Tile::kThreads}},
         MultiplyMatrices<W, Tile>, product, w);
}

template <int kLanes, typename W>
void Multiply(const Bf16ProductRows& product, const W& w, device::Stream& stream) {
  // Words of AWQ are of eight outputs: more of them make whole sectors of memory.
  using FewRowsTile = MatrixCoreTile<Bf16Product<W>, kLanes, W::kLiesInRows ? 1 : 4, 1>;
  using ManyRowsTile = MatrixCoreTile<Bf16Product<W>, kLanes, 2, 4>;
  if (product.rows <= FewRowsTile::kRows) {
    LaunchTiles<FewRowsTile>(product, w, stream);
  } else {
    LaunchTiles<ManyRowsTile>(product, w, stream);
  }
}

}  // namespace

bool FitsMatrixCores(const device::Capabilities& caps, int lanes, const TensorView& x,
                     const TensorView& w) {
  return HasMatrixCores(caps, lanes) && FitsBf16Product(x, w);
}

template <int kLanes>
void MultiplyOnMatrixCores(const TensorView& x, const TensorView& w, const float* bias,
                           const TensorView& y, device::Stream& stream) {
  const Bf16ProductRows product = Bf16ProductRows::Of(x, w, bias, y);
  const bool are_shaped = WithShapedWeights(
      w, [&](const auto& weights) { Multiply<kLanes>(product, weights, stream); });
  PAGEMILL_CHECK(are_shaped);
}

template void MultiplyOnMatrixCores<32>(const TensorView&, const TensorView&, const float*,
                                        const TensorView&, device::Stream&);
template void MultiplyOnMatrixCores<64>(const TensorView&, const TensorView&, const float*,
                                        const TensorView&, device::Stream&);

}  // namespace pagemill::gpu
