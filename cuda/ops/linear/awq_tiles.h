// File: cuda/ops/linear/awq_tiles.h
// AWQ's integers in an order for tensor cores. As stored, a word has a column of eight rows, so that
// a lane that multiplies one row needs eight words for eight columns. When weights are uploaded they
// become words of eight columns of one row, in tiles of 16 rows and a span of columns
// (weight_row.h): of a row, a lane's columns of all chunks of a span lie behind each other, and so do
// those of all lanes of a warp. Scales and zero points stay as they are.
//
//   constexpr ops::Kernel kKernel = {..., .packing = &kAwqTiles};  // where FitAwqTiles(w)
//   ...
//   WithShapedMatrix(w, [&](const auto& weights) { ... });         // as WithShapedWeights()
#ifndef PAGEMILL_CUDA_OPS_LINEAR_AWQ_TILES_H_
#define PAGEMILL_CUDA_OPS_LINEAR_AWQ_TILES_H_

#include <cstddef>
#include <cstdint>

#include "cc/base/status.h"
#include "cc/device/thread_pool.h"
#include "cc/ops/linear/linear.h"
#include "cc/ops/op.h"
#include "cc/tensor/quantized.h"
#include "cc/tensor/tensor_view.h"
#include "cuda/gpu_vendor.h"
#include "cuda/ops/linear/weights.h"

namespace pagemill::gpu {

// True for the matrices that can be packed: words of whole octets of rows, chunks of whole words, and
// groups that follow each other.
bool FitAwqTiles(const TensorView& w);

// The functions of the packing.
int64_t AwqTilesBytes(const TensorView& w);
Status PackAwqTiles(const TensorView& w, std::byte* packed, device::ThreadPool& pool);

inline constexpr ops::WeightPacking kAwqTiles = {.layout = "tiles of awq, version 1",
                                                 .inputs = ops::kWeightInputs,
                                                 .bytes = AwqTilesBytes,
                                                 .pack = PackAwqTiles};

// A packed matrix, for kernels.
struct AwqTiles {
  static constexpr bool kLiesInRows = false;
  static constexpr bool kHasFactors = false;
  static constexpr bool kDecodesSimply = false;
  static constexpr bool kHasChunkScales = true;
  static constexpr bool kHasQuads = false;
  static constexpr int kRows = 16;                                             // of a tile
  static constexpr int kRowWords = kSpanChunks * kChunkColumns / kWeightsAtOnce;  // likewise
  static constexpr int kTileWords = kRows * kRowWords;
  using Parts = PackedWeights<QuantizedLayout::kAwq, 4>;

  const uint32_t* data;
  Parts parts;    // scales and zero points
  int64_t spans;  // of a row

  static int64_t SpansOf(int64_t columns) {
    constexpr int64_t kColumns = int64_t{kRowWords} * kWeightsAtOnce;
    return (columns + kColumns - 1) / kColumns;
  }
  static AwqTiles Of(const TensorView& w) {
    return {w.Data<const uint32_t>(), Parts::Of(w), SpansOf(w.shape[1])};
  }

  // Where the word of columns `first` to first + 7 of a row is.
  static constexpr int64_t WordOf(int64_t row, int64_t first, int64_t spans) {
    const int64_t chunk = first / kChunkColumns, eighth = first % kChunkColumns / kWeightsAtOnce;
    return (row / kRows * spans + chunk / kSpanChunks) * kTileWords + row % kRows * kRowWords +
           eighth * kSpanChunks + chunk % kSpanChunks;
  }

  struct Row {
    const uint32_t* words;  // of the first tile
    Parts::Row parts;

    // Eight integers, in the order of columns.
    using Stored = PackedWeights<QuantizedLayout::kPackQuantized, 4>::Row::Stored;
    using StoredScale = Parts::Row::StoredScale;

    PAGEMILL_DEVICE void Load(int64_t first, int, float (&to)[kWeightsAtOnce]) const {
      const ChunkOfSpan chunk = ChunkOfSpan::At(first);
      const auto eighth = static_cast<unsigned>(first % kChunkColumns / kWeightsAtOnce);
      Decode(LoadPart(chunk, eighth), chunk, eighth, ScaleOf(LoadScale(chunk), chunk), to);
    }

    PAGEMILL_DEVICE bool HasChunkScales() const { return true; }
    PAGEMILL_DEVICE bool HasQuads() const { return false; }
    PAGEMILL_DEVICE Stored LoadPart(const ChunkOfSpan& chunk, unsigned eighth) const {
      return {{words[int64_t{chunk.span} * kTileWords + eighth * kSpanChunks + chunk.i]}};
    }
    PAGEMILL_DEVICE Vector<Stored, kSpanChunks> LoadSpan(unsigned span, unsigned eighth) const {
      return *reinterpret_cast<const Vector<Stored, kSpanChunks>*>(
          words + int64_t{span} * kTileWords + eighth * kSpanChunks);
    }
    PAGEMILL_DEVICE static Stored StoredOf(const Stored& part) { return part; }
    PAGEMILL_DEVICE StoredScale LoadScale(const ChunkOfSpan& chunk) const {
      return parts.LoadScale(chunk);
    }
    PAGEMILL_DEVICE ChunkScale ScaleOf(const StoredScale& stored, const ChunkOfSpan& chunk) const {
      return parts.ScaleOf(stored, chunk);
    }
    PAGEMILL_DEVICE void Decode(const Stored& stored, const ChunkOfSpan&, unsigned,
                                const ChunkScale& scale, float (&to)[kWeightsAtOnce]) const {
      PAGEMILL_UNROLL
      for (int i = 0; i < kWeightsAtOnce; ++i) {
        to[i] = stored.ValueOf(i, /*shift=*/0, scale.other) * scale.scale;
      }
    }
    PAGEMILL_DEVICE float Factor() const { return 1; }
  };

  PAGEMILL_DEVICE Row At(int64_t, int64_t row) const {
    return {data + WordOf(row, /*first=*/0, spans), parts.At(/*matrix=*/0, row)};
  }
};

// True if a matrix is packed: its view has no row stride, as ops::WeightPacking has it.
inline bool AreAwqTiles(const TensorView& w) {
  return w.parts != nullptr && w.parts->format.layout == QuantizedLayout::kAwq &&
         w.row_stride_bytes == 0;
}

// As WithWeights() and WithShapedWeights(), also of packed matrices.
template <typename Body>
void WithMatrix(const TensorView& w, const Body& body) {
  if (AreAwqTiles(w)) return body(AwqTiles::Of(w));
  WithWeights(w, body);
}
template <typename Body>
bool WithShapedMatrix(const TensorView& w, const Body& body) {
  if (!AreAwqTiles(w)) return WithShapedWeights(w, body);
  body(AwqTiles::Of(w));
  return true;
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_LINEAR_AWQ_TILES_H_
