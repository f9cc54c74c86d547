// File: cc/ops/linear/linear_amx_inl.h
// `linear` with bf16 weights and x rounded to bf16, in AMX tiles; slices are those of
// packed_bf16.h. Generic in the tile registers (cc/ops/tiles/tile_band.h).
//
// A chunk of x is divided into bands of kBandRows rows, the last one of the remaining rows:
//
//   [blocks of 32 elements of k][rows][32 elements] bf16, with zeros past k
//
// Order of accumulation, from Intel's description of TDPBF16PS: for each block of 32 elements, one
// chain of the even elements and one of the odd ones, ascending; their sum is added to the output;
// then the bias. It is the same for every number of rows.
#ifndef PAGEMILL_CC_OPS_LINEAR_LINEAR_AMX_INL_H_
#define PAGEMILL_CC_OPS_LINEAR_LINEAR_AMX_INL_H_

#include <cstdint>
#include <cstring>

#include "cc/ops/linear/packed_bf16.h"
#include "cc/ops/linear/packed_gemm_kernels.h"
#include "cc/ops/tiles/banded_products.h"
#include "cc/tensor/float16.h"

namespace pagemill::ops::linear {

// All functions are members of a template over Tiles, so that files compiled for different
// instruction sets do not share them.
template <class Tiles>
struct AmxBf16 {
  using Chunk = BandedProducts<Tiles, TileProduct::kBf16>;
  using Band = typename Chunk::Band;
  static constexpr int64_t kTileRows = Band::kTileRows;
  static constexpr int64_t kRowBytes = Band::kRowBytes;
  static constexpr int64_t kBandRows = Band::kBandRows;

  static int64_t Blocks(int64_t k) { return (k + kPaddedElements - 1) / kPaddedElements; }

  static int64_t ChunkBytes(DType, int64_t n, int64_t k) { return n * Blocks(k) * kRowBytes; }

  static void RoundRow(const float* x, int64_t k, int64_t block_bytes, uint8_t* out) {
    for (int64_t at = 0; at < k; at += kPaddedElements, out += block_bytes) {
      uint16_t rounded[kPaddedElements] = {};
      const int64_t count = k - at < kPaddedElements ? k - at : kPaddedElements;
      if (count == kPaddedElements) {
        for (int64_t i = 0; i < kPaddedElements; ++i) rounded[i] = FloatToBf16(x[at + i]);
      } else {
        for (int64_t i = 0; i < count; ++i) rounded[i] = FloatToBf16(x[at + i]);
      }
      std::memcpy(out, rounded, sizeof(rounded));
    }
  }

  static void Prepare(DType, const InputRows& x, uint8_t* chunk) {
    for (int64_t begin = 0; begin < x.n; begin += kBandRows) {
      const int64_t rows = Band::RowsOfBand(x.n, begin);
      for (int64_t row = 0; row < rows; ++row) {
        if (!x.Prepares(begin + row)) continue;
        RoundRow(x.rows + (begin + row) * x.stride, x.k, rows * kRowBytes, chunk + row * kRowBytes);
      }
      chunk += rows * Blocks(x.k) * kRowBytes;
    }
  }

  // Stores the outputs of one tile: `columns` of `rows` rows.
  template <int kSums>
  static void Store(const float* bias, int64_t rows, int64_t columns, float* y, int64_t y_stride) {
    if (rows <= 0 || columns <= 0) return;
    const int64_t stride_bytes = y_stride * static_cast<int64_t>(sizeof(float));
    if (columns >= kTileRows) {
      Tiles::template Store<kSums>(y, stride_bytes);
      if (bias == nullptr) return;
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t i = 0; i < kTileRows; ++i) y[row * y_stride + i] += bias[i];
      }
      return;
    }
    alignas(64) float sums[kTileRows * kTileRows];
    Tiles::template Store<kSums>(sums, kRowBytes);
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t i = 0; i < columns; ++i) {
        y[row * y_stride + i] = sums[row * kTileRows + i] + (bias == nullptr ? 0.0f : bias[i]);
      }
    }
  }

  // Loads the sums of one tile, which `Store` wrote for earlier parts of k.
  template <int kSums>
  static void Load(int64_t rows, int64_t columns, const float* y, int64_t y_stride) {
    if (rows <= 0) return;
    if (columns >= kTileRows) {
      return Tiles::template Load<kSums>(y, y_stride * static_cast<int64_t>(sizeof(float)));
    }
    alignas(64) float sums[kTileRows * kTileRows] = {};
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t i = 0; i < columns; ++i) sums[row * kTileRows + i] = y[row * y_stride + i];
    }
    Tiles::template Load<kSums>(sums, kRowBytes);
  }

  static void Multiply(const PackedProduct& o) {
    const auto start = [&](int64_t begin, int64_t rows) {
      if (!o.adds) return Chunk::Clear(rows);
      const float* const y = o.y + begin * o.y_stride;
      const float* const lower = y + kTileRows * o.y_stride;
      const int64_t upper_rows = rows < kTileRows ? rows : kTileRows;
      Load<0>(upper_rows, o.m, y, o.y_stride);
      Load<1>(upper_rows, o.m - kTileRows, y + kTileRows, o.y_stride);
      Load<2>(rows - kTileRows, o.m, lower, o.y_stride);
      Load<3>(rows - kTileRows, o.m - kTileRows, lower + kTileRows, o.y_stride);
    };
    const auto finish = [&](int64_t begin, int64_t rows) {
      float* const y = o.y + begin * o.y_stride;
      float* const lower = y + kTileRows * o.y_stride;
      const float* const right = o.bias == nullptr ? nullptr : o.bias + kTileRows;
      const int64_t upper_rows = rows < kTileRows ? rows : kTileRows;
      Store<0>(o.bias, upper_rows, o.m, y, o.y_stride);
      Store<1>(right, upper_rows, o.m - kTileRows, y + kTileRows, o.y_stride);
      Store<2>(o.bias, rows - kTileRows, o.m, lower, o.y_stride);
      Store<3>(right, rows - kTileRows, o.m - kTileRows, lower + kTileRows, o.y_stride);
    };
    Chunk::Multiply({.rows = o.activations,
                     .n = o.n,
                     .columns = o.weights,
                     .blocks = Blocks(o.k),
                     .configured = o.tile_config,
                     .outputs = reinterpret_cast<const uint8_t*>(o.y),
                     .output_stride = o.y_stride * static_cast<int64_t>(sizeof(float))},
                    start, finish);
  }

  static constexpr PackedGemm kKernels = {.max_chunk_rows = Chunk::kMaxRows,
                                          .slice_bytes = Bf16SliceBytes,
                                          .pack = PackBf16Slice,
                                          .chunk_bytes = ChunkBytes,
                                          .prepare = Prepare,
                                          .multiply = Multiply,
                                          .part_multiple = kPaddedElements,
                                          .max_whole_bytes = 1 << 20,
                                          .release_tiles = Tiles::Release};
};

}  // namespace pagemill::ops::linear

#endif  // PAGEMILL_CC_OPS_LINEAR_LINEAR_AMX_INL_H_
