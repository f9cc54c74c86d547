// File: cc/ops/linear/packed_gemm_kernels.h
// Interface of packed GEMMs: functions over raw pointers, compiled for one instruction set each.
// packed_gemm.h (threads, workspace, chunks) is compiled once, for the baseline. Plain data only,
// so that files of different instruction sets share no inline functions.
//
// Weights are packed once, when a program is bound, into slices of kSliceRows rows, and rows of x
// are prepared once per call, in chunks of at most `max_chunk_rows`, which several threads may
// share. Each GEMM defines the layout and precision of both. A GEMM may also read weights and x as
// stored, without packing or preparation.
#ifndef PAGEMILL_CC_OPS_LINEAR_PACKED_GEMM_KERNELS_H_
#define PAGEMILL_CC_OPS_LINEAR_PACKED_GEMM_KERNELS_H_

#include <cstdint>

#include "cc/tensor/dtype.h"

namespace pagemill::ops::linear {

inline constexpr int64_t kSliceRows = 32;

// Rows of a weight matrix as stored: [.., k], any alignment.
struct StoredRows {
  DType dtype;
  const uint8_t* rows;
  int64_t stride;  // bytes
  int64_t k;
};

// Rows of x: [n, k] floats, of which rows [begin, end) are prepared. A group of rows that a GEMM
// prepares together belongs to the call whose range contains the first of them.
struct InputRows {
  const float* rows;
  int64_t stride;  // floats
  int64_t n;
  int64_t k;
  int64_t begin = 0;
  int64_t end = INT64_MAX;
  // The columns to prepare, if the GEMM shares columns: from and to multiples of 32, or k.
  int64_t first_column = 0;
  int64_t last_column = INT64_MAX;

  [[gnu::always_inline]] bool Prepares(int64_t first) const {
    return begin <= first && first < end;
  }
};

// Scales of the weights of a slice, one per block of rows and columns.
struct SliceScales {
  const float* values = nullptr;  // of the matrix's first block; null if weights have no scales
  int64_t stride = 0;             // floats between rows of blocks
  int64_t block_rows = 1;
  int64_t block_columns = 1;
  int64_t first_row = 0;  // of the slice in the matrix

  // The scales of row `row` of the slice, one for each block of columns.
  const float* OfRow(int64_t row) const { return values + (first_row + row) / block_rows * stride; }
};

// Memory that later products will read: a hint, which kernels may prefetch while they multiply.
struct PrefetchRange {
  const uint8_t* begin = nullptr;
  const uint8_t* end = nullptr;
};

// One slice times one chunk, or the same part of k of both.
struct PackedProduct {
  DType dtype;                 // of the weights as stored
  const uint8_t* weights;      // a slice, 64-byte aligned
  const uint8_t* activations;  // a chunk, 64-byte aligned
  const float* bias;           // of the slice's first row, or null
  float* y;                    // of the chunk's first row of x and the slice's first weight row
  int64_t y_stride;            // floats between rows of x
  int64_t n;                   // rows of x in the chunk, at least 1
  int64_t m;                   // weight rows, 1 to kSliceRows; as stored: of one slice or more
  int64_t k;
  SliceScales scales = {};
  bool adds = false;  // to y, which holds the sums of earlier parts of k without the bias
  PrefetchRange prefetch[2] = {};
  // For GEMMs that read weights as stored.
  int64_t weight_stride = 0;   // bytes between weight rows
  int64_t x_stride = 0;        // floats between rows of x
  uint8_t* scratch = nullptr;  // scratch_bytes() of the thread's own, 64-byte aligned
  // For GEMMs with `release_tiles`: tile configuration currently loaded on this thread, in the
  // GEMM's own encoding; 0 = none. Null: `multiply` configures tiles and releases them again.
  int64_t* tile_config = nullptr;
};

// The order of accumulation of an output depends only on k and the GEMM, so that it has the same
// bits in chunks of any height.
struct PackedGemm {
  int64_t max_chunk_rows = 0;
  // The next four are null if the GEMM reads weights as stored, with any alignment: a slice is then
  // kSliceRows rows, and a chunk is rows of x. Bytes of a slice of rows of k elements: a multiple
  // of 64.
  int64_t (*slice_bytes)(DType dtype, int64_t k) = nullptr;
  // Packs the first `count` rows of `source`, at most kSliceRows; the other rows of the slice
  // become zeros.
  void (*pack)(const StoredRows& source, int64_t count, uint8_t* slice) = nullptr;
  // Bytes of a chunk of n rows for weights of `dtype`: a multiple of 64.
  int64_t (*chunk_bytes)(DType dtype, int64_t n, int64_t k) = nullptr;
  void (*prepare)(DType dtype, const InputRows& x, uint8_t* chunk) = nullptr;
  void (*multiply)(const PackedProduct& product) = nullptr;
  // Memory that `multiply` needs for rows of k elements: a multiple of 64. Null: none.
  int64_t (*scratch_bytes)(DType dtype, int64_t k) = nullptr;
  // If not 0, k may be divided at multiples of this: `multiply` supports `adds`, and a slice can be
  // split into one of the first elements followed by one of the others. Chunks are prepared for
  // each part, or at once if they can be split like slices.
  int64_t part_multiple = 0;
  bool prepares_whole = false;
  // If the prepared x is no larger, k is not divided: x fits into L3, and parts cost 3 to 7 %.
  int64_t max_whole_bytes = 4 << 20;
  // `prepare` handles all rows of a chunk together, and may be called for some columns only: each
  // call recomputes what it needs of whole rows.
  bool shares_columns = false;
  // Called after a run of products if `tile_config` is not 0.
  void (*release_tiles)() = nullptr;

  [[gnu::always_inline]] bool ReadsStored() const { return pack == nullptr; }
};

// Weights of any dtype as stored, in float.
extern const PackedGemm kFloatPortable;
// Decodes `k` elements of a weight row as these GEMMs do.
using DequantizeRows = void(DType dtype, const uint8_t* row, int64_t k, float* out);
DequantizeRows DequantizePortable;
#if defined(__x86_64__)
extern const PackedGemm kFloatAvx2;
extern const PackedGemm kFloatAvx512;
DequantizeRows DequantizeAvx2;
DequantizeRows DequantizeAvx512;

// Block formats; activations as integers in blocks of 32 with a scale each.
extern const PackedGemm kAvx512VnniKernels;       // of 8 bits
extern const PackedGemm kAvx512VnniInt16Kernels;  // of 15 bits
extern const PackedGemm kAvx512VnniMixedKernels;  // of 15 for outlier blocks, else of 8
extern const PackedGemm kAvxVnniMixedKernels;
extern const PackedGemm kAvx2MixedKernels;
extern const PackedGemm kAvxVnniInt8Kernels;
extern const PackedGemm kAvx2Int8Kernels;
#elif defined(__aarch64__)
extern const PackedGemm kAsimdDotprodKernels;  // the same two
extern const PackedGemm kAsimdDotprodInt16Kernels;
extern const PackedGemm kAsimdI8mmKernels;
extern const PackedGemm kAsimdI8mmInt16Kernels;
#elif defined(__s390x__)
extern const PackedGemm kVxeInt8Kernels;
extern const PackedGemm kVxeInt16Kernels;
#endif

}  // namespace pagemill::ops::linear

#endif  // PAGEMILL_CC_OPS_LINEAR_PACKED_GEMM_KERNELS_H_
