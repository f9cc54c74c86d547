// File: cc/ops/linear/block_kernels/block_walk_inl.h
// Products of block-format slices with quantized activations, generic in the multiply instructions:
// the walk over a slice, the scales of a record and the constants of a packed GEMM. Included by
// files compiled for one instruction set; everything has internal linkage.
//
// A class `Blocks` multiplies blocks and has
//
//   static constexpr int64_t kPrefetchBytes   // prefetch distance of weights; 0: no prefetch
//   static constexpr bool kSharesColumns      // see PackedGemm
//   // Bytes of a block of n rows in a chunk.
//   template <DType> static constexpr int64_t BlockBytes(int64_t n)
//   template <DType> static void Prepare(const InputRows& x, uint8_t* chunk)
//   // Adds a block of n rows of x times a record to their outputs, kSliceRows floats each.
//   template <DType> static void Add(head, record, x, int64_t n, float* y)
//
// and kKernels<Blocks> is its packed GEMM.
#ifndef PAGEMILL_CC_OPS_LINEAR_BLOCK_KERNELS_BLOCK_WALK_INL_H_
#define PAGEMILL_CC_OPS_LINEAR_BLOCK_KERNELS_BLOCK_WALK_INL_H_

#include <cstdint>

#include "cc/ops/linear/packed_blocks.h"
#include "cc/ops/linear/packed_gemm_kernels.h"
#include "cc/ops/linear/quantized_activations.h"
#include "cc/ops/linear/weight_prefetch.h"
#include "cc/tensor/dtype.h"

#define PAGEMILL_INLINE [[gnu::always_inline]] inline

namespace pagemill::ops::linear {
namespace {

constexpr int64_t kMaxChunkRows = 32;

PAGEMILL_INLINE int32_t ReadInt(const uint8_t* from) {
  int32_t value;
  __builtin_memcpy(&value, from, sizeof(value));
  return value;
}

PAGEMILL_INLINE float ReadFloat(const uint8_t* from) {
  return __builtin_bit_cast(float, ReadInt(from));
}

// Bits of a value of a slice, or of what a code stands for. Values of Q3_K have 3, but a sum of
// them ends after half a block, as that of 5 bits does.
template <DType kDType>
constexpr int kValueBits = [] {
  switch (kDType) {
    case DType::kQ8_0:
    case DType::kIQ4_NL:
      return 8;
    case DType::kQ6_K:
      return 6;
    case DType::kQ3_K:
    case DType::kQ5_0:
    case DType::kQ5_K:
    case DType::kMxfp4:
    case kNvfp4Blocks:
      return 5;
    default:
      return 4;
  }
}();

// Scales of the products of rows from `row` on of a record. `Scales` has registers `scale`,
// `second_scale`, `minimum` and `half_scales[2]`, and fills such an array from memory with
// F16s(from, out) and Bf16s(from, out), from products of f16 and unsigned bytes with Products(head,
// bytes, out) and from signed bytes with Integers(from, out).
template <DType kDType, class Scales>
PAGEMILL_INLINE void LoadScales(const uint8_t* head, const uint8_t* record, int64_t row,
                                Scales* out) {
  using T = BlockTraits<kDType>;
  const uint8_t* scales = record + T::kLayout.scales;
  const uint8_t* minima = record + T::kLayout.minima;
  if constexpr (T::kHasHalfScales) {
    Scales::F16s(head + 2 * row, out->scale);
    Scales::Integers(scales + row, out->half_scales[0]);
    Scales::Integers(scales + kSliceRows + row, out->half_scales[1]);
  } else if constexpr (T::kHasHead) {
    Scales::Products(head + 2 * row, scales + row, out->scale);
    Scales::Products(head + 2 * (kSliceRows + row), minima + row, out->minimum);
  } else if constexpr (T::kHasBf16Scales) {
    Scales::Bf16s(scales + 2 * row, out->scale);
  } else {
    Scales::F16s(scales + 2 * row, out->scale);
    if constexpr (T::kHasMinimum) Scales::F16s(minima + 2 * row, out->minimum);
    if constexpr (T::kHasTwoScales) {
      Scales::F16s(scales + 2 * (kSliceRows + row), out->second_scale);
    }
  }
}

// Iterates over the records of a slice.
template <DType kDType>
class Records {
 public:
  explicit Records(const uint8_t* slice) : head_(slice), record_(slice + kLayout.head_bytes) {}
  const uint8_t* head() const { return head_; }
  const uint8_t* record() const { return record_; }
  PAGEMILL_INLINE void Next() {
    record_ += kLayout.record_bytes;
    if (!BlockTraits<kDType>::kHasHead || ++block_ % kRecordsPerHead != 0) return;
    head_ = record_;
    record_ += kLayout.head_bytes;
  }

 private:
  static constexpr PackedBlockLayout kLayout = BlockTraits<kDType>::kLayout;
  const uint8_t* head_;
  const uint8_t* record_;
  int64_t block_ = 0;
};

// Common part of `Blocks` for chunks of rows that all have kPlanes planes.
template <int kPlanes>
struct PlainBlocks {
  static constexpr bool kSharesColumns = false;
  template <DType>
  static constexpr int64_t BlockBytes(int64_t n) {
    return n * kXRecordBytes<kPlanes>;
  }
};

template <class Blocks, DType kDType>
void MultiplySlice(const PackedProduct& p) {
  alignas(64) float sums[kMaxChunkRows * kSliceRows];
  for (int64_t i = 0; i < p.n * kSliceRows; ++i) sums[i] = 0;
  Records<kDType> records(p.weights);
  const uint8_t* x = p.activations;
  for (int64_t b = 0; b < p.k / kRecordElements; ++b, records.Next()) {
    if constexpr (Blocks::kPrefetchBytes != 0) {
      const uint8_t* later = records.record() + Blocks::kPrefetchBytes;
      for (int64_t i = 0; i < BlockTraits<kDType>::kLayout.record_bytes; i += 64) {
        PrefetchWeights(later + i);
      }
    }
    Blocks::template Add<kDType>(records.head(), records.record(), x, p.n, sums);
    x += Blocks::template BlockBytes<kDType>(p.n);
  }
  for (int64_t n = 0; n < p.n; ++n) {
    const float* from = sums + n * kSliceRows;
    float* y = p.y + n * p.y_stride;
    for (int64_t m = 0; m < p.m; ++m) y[m] = p.bias == nullptr ? from[m] : from[m] + p.bias[m];
  }
}

template <class Blocks>
void Multiply(const PackedProduct& product) {
  WithSliceFormat(product.dtype, [&]<DType kDType>() { MultiplySlice<Blocks, kDType>(product); });
}

template <class Blocks>
int64_t ChunkBytes(DType dtype, int64_t n, int64_t k) {
  int64_t bytes = 0;
  WithSliceFormat(dtype, [&]<DType kDType>() {
    bytes = (k / kRecordElements * Blocks::template BlockBytes<kDType>(n) + 63) / 64 * 64;
  });
  return bytes;
}

template <class Blocks>
void Prepare(DType dtype, const InputRows& x, uint8_t* chunk) {
  WithSliceFormat(dtype, [&]<DType kDType>() { Blocks::template Prepare<kDType>(x, chunk); });
}

template <class Blocks>
constexpr PackedGemm kKernels{.max_chunk_rows = kMaxChunkRows,
                              .slice_bytes = BlockSliceBytes,
                              .pack = PackBlockSlice,
                              .chunk_bytes = ChunkBytes<Blocks>,
                              .prepare = Prepare<Blocks>,
                              .multiply = Multiply<Blocks>,
                              .shares_columns = Blocks::kSharesColumns};

}  // namespace
}  // namespace pagemill::ops::linear

#undef PAGEMILL_INLINE

#endif  // PAGEMILL_CC_OPS_LINEAR_BLOCK_KERNELS_BLOCK_WALK_INL_H_
