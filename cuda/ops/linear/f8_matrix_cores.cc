#include "cuda/ops/linear/f8_matrix_cores.h"

#include <cstdint>

#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/gpu_vendor.h"
#include "cuda/ops/gpu_support.h"
#include "cuda/ops/linear/bf16_product.h"
#include "cuda/ops/linear/f8_matrix_core_tiles.h"
#include "cuda/ops/linear/f8_stages.h"

namespace pagemill::gpu {
namespace {

// Parameters of a product.
struct F8Product {
  Rows<uint8_t> x;
  Rows<float> x_scales;
  Rows<const uint8_t> w;
  F8StageScales w_scales;
  ProductResults results;
  int64_t rows, outputs, columns;  // N, M, K

  template <typename Visit>
  void ForData(const Visit& visit) const {
    visit(x.data);
    visit(x_scales.data);
    visit(w.data);
    visit(w_scales.data);
    visit(results.bias);
    visit(results.y.data);
  }

  using Sum = float;
  using Target = ProductResults::Target;
  PAGEMILL_DEVICE Target TargetOf(int64_t row) const { return results.TargetOf(row); }
  PAGEMILL_DEVICE void Store(const Target& to, int64_t output, float sum) const {
    if (HasScalesOfRows()) sum *= ScaleOfW(output, 0);
    results.Store(to, output, sum);
  }
  PAGEMILL_DEVICE const uint8_t* RowOfX(int64_t row) const { return x[row]; }
  PAGEMILL_DEVICE const float* ScalesOfX(int64_t row) const { return x_scales[row]; }
  PAGEMILL_DEVICE const uint8_t* RowOfW(int64_t output) const { return w[output]; }
  PAGEMILL_DEVICE bool HasScalesOfRows() const { return w_scales.step == 0; }
  PAGEMILL_DEVICE float ScaleOfW(int64_t output, int stage) const {
    return w_scales.data[w_scales.IndexOf(static_cast<int>(output), stage)];
  }
};

// Block (outputs, rows).
template <typename Tile>
PAGEMILL_KERNEL_OF(Tile::kThreads, Tile::kBlocks) MultiplyF8(F8Product product) {
  Tile::Multiply(product, int64_t{BlockIndex().x} * Tile::kOutputs,
                 int64_t{BlockIndex().y} * Tile::kRows);
}

template <typename Tile>
void LaunchTiles(const F8Product& product, device::Stream& stream) {
  Launch(stream,
         {.blocks = {DivideUp(product.outputs, Tile::kOutputs),
                     DivideUp(product.rows, Tile::kRows)},
          .threads = {Tile::kThreads}},
         MultiplyF8<Tile>, product);
}

}  // namespace

bool FitsF8MatrixCores(const device::Capabilities& caps, int lanes, const TensorView& x,
                       const TensorView& w) {
  if (!HasF8MatrixCores(caps, lanes) || !FitsBf16Product(x, w) || !HaveF8Stages(w)) return false;
  const auto scales = F8StageScales::Of(F8Weights::Of(w));
  const int64_t outputs = w.shape[static_cast<size_t>(w.rank - 2)];
  return scales.step == 0 || scales.block_rows % 16 == 0 || scales.block_rows >= outputs;
}

template <int kLanes>
void MultiplyInF8(const Rows<uint8_t>& x, const Rows<float>& x_scales, const TensorView& w,
                  const float* bias, const TensorView& y, device::Stream& stream) {
  const auto weights = F8Weights::Of(w);
  const int64_t rows = y.shape[0], outputs = w.shape[0];
  const F8Product product = {.x = x,
                             .x_scales = x_scales,
                             .w = {weights.data, weights.row_bytes},
                             .w_scales = F8StageScales::Of(weights),
                             .results = ProductResults::Of(bias, y),
                             .rows = rows,
                             .outputs = outputs,
                             .columns = w.shape[1]};
  using Few = FewF8Rows<F8Product, kLanes>;
  if (rows <= Few::kRows) {
    LaunchTiles<Few>(product, stream);
  } else {
    LaunchTiles<ManyF8Rows<F8Product, kLanes>>(product, stream);
  }
}

template void MultiplyInF8<32>(const Rows<uint8_t>&, const Rows<float>&, const TensorView&,
                               const float*, const TensorView&, device::Stream&);
template void MultiplyInF8<64>(const Rows<uint8_t>&, const Rows<float>&, const TensorView&,
                               const float*, const TensorView&, device::Stream&);

}  // namespace pagemill::gpu
