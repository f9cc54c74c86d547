#include "cuda/ops/linear/tensor_cores.h"

#include <cstdint>

#include "cuda/gpu_launch.h"
#include "cuda/gpu_rows.h"
#include "cuda/gpu_vendor.h"

namespace pagemill::gpu {
namespace {

constexpr int kThreads = 128;
constexpr int kSplits = kThreads / 32;
constexpr int kFewRows = 32;  // of x, up to which warps share K

struct TileProduct {
  const BFloat16* data;  // x
  int64_t x_stride;
  Rows<const BFloat16> w;
  const float* bias;
  Rows<BFloat16> y;
  Rows<float> wide_y;
  int64_t rows, outputs, columns;  // N, M, K
  bool wide;                       // y is f32

  PAGEMILL_DEVICE void Store(int64_t row, int64_t output, float sum) const {
    if (row >= rows || output >= outputs) return;
    if (bias != nullptr) sum += bias[output];
    if (wide) {
      wide_y[row][output] = sum;
    } else {
      y[row][output] = FromFloat<BFloat16>(sum);
    }
  }
};

// Eight columns of a row. The instruction's order of K does not matter as long as both factors have
// the same: a lane's fragments of two instructions are eight columns that follow each other.
struct alignas(16) Columns {
  uint32_t pairs[4];
};

PAGEMILL_DEVICE Columns LoadColumns(const BFloat16* from) {
  return *reinterpret_cast<const Columns*>(from);
}

// Adds part `split` of K to sums[i][j]: outputs first_output + 16 i, rows first_row + 8 j of x, as
// Mma16x8x16 has them in lanes. Rows beyond the last are read as the last.
template <int kOutputTiles, int kRowTiles>
PAGEMILL_DEVICE void AddSplit(const TileProduct& p, int64_t first_output, int64_t first_row,
                              int split, float (&sums)[kOutputTiles][kRowTiles][4]) {
  const int64_t chunks = p.columns / kTensorCoreColumns;
  const int64_t begin = chunks * split / kSplits * kTensorCoreColumns;
  const int64_t end = chunks * (split + 1) / kSplits * kTensorCoreColumns;
  const int group = Lane() / 4, column = Lane() % 4 * 8;
  const BFloat16* weights[kOutputTiles][2];
  const BFloat16* x[kRowTiles];
  PAGEMILL_UNROLL
  for (int i = 0; i < kOutputTiles; ++i) {
    PAGEMILL_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int64_t output = first_output + 16 * i + 8 * half + group;
      weights[i][half] = p.w[output < p.outputs ? output : p.outputs - 1] + column;
    }
  }
  PAGEMILL_UNROLL
  for (int j = 0; j < kRowTiles; ++j) {
    const int64_t row = first_row + 8 * j + group;
    x[j] = p.data + (row < p.rows ? row : p.rows - 1) * p.x_stride + column;
  }
  for (int64_t k = begin; k < end; k += kTensorCoreColumns) {
    Columns of_x[kRowTiles];
    PAGEMILL_UNROLL
    for (int j = 0; j < kRowTiles; ++j) of_x[j] = LoadColumns(x[j] + k);
    PAGEMILL_UNROLL
    for (int i = 0; i < kOutputTiles; ++i) {
      const Columns upper = LoadColumns(weights[i][0] + k);
      const Columns lower = LoadColumns(weights[i][1] + k);
      PAGEMILL_UNROLL
      for (int step = 0; step < 2; ++step) {
        const uint32_t a[4] = {upper.pairs[2 * step], lower.pairs[2 * step],
                               upper.pairs[2 * step + 1], lower.pairs[2 * step + 1]};
        PAGEMILL_UNROLL
        for (int j = 0; j < kRowTiles; ++j) {
          const uint32_t b[2] = {of_x[j].pairs[2 * step], of_x[j].pairs[2 * step + 1]};
          Mma16x8x16(sums[i][j], a, b);
        }
      }
    }
  }
}

// A block for 16 outputs of 8 rows, a warp for each split.
PAGEMILL_KERNEL MultiplyFewRows(TileProduct p) {
  PAGEMILL_SHARED(float[kSplits][16 * 8], parts);
  const int64_t first_output = static_cast<int64_t>(BlockIndex().x) * 16;
  const int64_t first_row = static_cast<int64_t>(BlockIndex().y) * 8;
  float sums[1][1][4] = {};
  AddSplit(p, first_output, first_row, Warp(), sums);
  const int group = Lane() / 4, in_group = Lane() % 4;
  PAGEMILL_UNROLL
  for (int i = 0; i < 4; ++i) {
    parts[Warp()][(group + 8 * (i / 2)) * 8 + 2 * in_group + i % 2] = sums[0][0][i];
  }
  SyncBlock();
  const int element = static_cast<int>(ThreadIndex().x);  // as many as threads
  float sum = parts[0][element];
  PAGEMILL_UNROLL
  for (int split = 1; split < kSplits; ++split) sum += parts[split][element];
  p.Store(first_row + element % 8, first_output + element / 8, sum);
}

constexpr int kOutputTiles = 2, kRowTiles = 4;       // of a warp
constexpr int kOutputWarps = 2, kRowWarps = 2;       // of a block
constexpr int kBlockOutputs = kOutputWarps * kOutputTiles * 16;
constexpr int kBlockRows = kRowWarps * kRowTiles * 8;

// A block for kBlockOutputs outputs of kBlockRows rows.
PAGEMILL_KERNEL MultiplyManyRows(TileProduct p) {
  const int64_t first_output = static_cast<int64_t>(BlockIndex().x) * kBlockOutputs +
                               Warp() % kOutputWarps * (kOutputTiles * 16);
  const int64_t first_row = static_cast<int64_t>(BlockIndex().y) * kBlockRows +
                            Warp() / kOutputWarps * (kRowTiles * 8);
  float totals[kOutputTiles][kRowTiles][4] = {};
  AddSplit(p, first_output, first_row, 0, totals);
  for (int split = 1; split < kSplits; ++split) {
    float sums[kOutputTiles][kRowTiles][4] = {};
    AddSplit(p, first_output, first_row, split, sums);
    PAGEMILL_UNROLL
    for (int e = 0; e < kOutputTiles * kRowTiles * 4; ++e) {
      totals[e / (kRowTiles * 4)][e / 4 % kRowTiles][e % 4] +=
          sums[e / (kRowTiles * 4)][e / 4 % kRowTiles][e % 4];
    }
  }
  const int group = Lane() / 4, in_group = Lane() % 4;
  PAGEMILL_UNROLL
  for (int e = 0; e < kOutputTiles * kRowTiles * 4; ++e) {
    const int i = e / (kRowTiles * 4), j = e / 4 % kRowTiles, element = e % 4;
    p.Store(first_row + 8 * j + 2 * in_group + element % 2,
            first_output + 16 * i + group + 8 * (element / 2), totals[i][j][element]);
  }
}

}  // namespace

void MultiplyOnTensorCores(const TensorView& x, const TensorView& w, const float* bias,
                           const TensorView& y, device::Stream& stream) {
  const Rows<const BFloat16> rows = RowsOf<const BFloat16>(x);
  const TileProduct product = {.data = rows.data,
                               .x_stride = rows.stride,
                               .w = RowsOf<const BFloat16>(w),
                               .bias = bias,
                               .y = RowsOf<BFloat16>(y),
                               .wide_y = RowsOf<float>(y),
                               .rows = x.shape[0],
                               .outputs = w.shape[0],
                               .columns = w.shape[1],
                               .wide = y.dtype == DType::kF32};
  if (product.rows <= kFewRows) {
    Launch(stream,
           {.blocks = {DivideUp(product.outputs, 16), DivideUp(product.rows, 8)},
            .threads = {kThreads}},
           MultiplyFewRows, product);
  } else {
    Launch(stream,
           {.blocks = {DivideUp(product.outputs, kBlockOutputs), DivideUp(product.rows, kBlockRows)},
            .threads = {kThreads}},
           MultiplyManyRows, product);
  }
}

}  // namespace pagemill::gpu
