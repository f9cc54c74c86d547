// File: cuda/ops/rms_norm/rms_norm_row.h
// Root mean square normalization of a row by a block, in kernels that read or make the row.
//
//   WithNormVectorSize<T>(size, [&]<int kSize>() {
//     Launch(stream, NormShape<kSize>(x, size), Kernel<T, kSize>, ...);  // it calls AwaitInputs()
//   }, w, x, y);
#ifndef PAGEMILL_CUDA_OPS_RMS_NORM_RMS_NORM_ROW_H_
#define PAGEMILL_CUDA_OPS_RMS_NORM_RMS_NORM_ROW_H_

#include <cstdint>

#include "cc/tensor/tensor_view.h"
#include "cuda/gpu_launch.h"
#include "cuda/gpu_reduce.h"
#include "cuda/gpu_rows.h"
#include "cuda/gpu_vendor.h"

namespace pagemill::gpu {

// Elements of a row that a thread keeps in registers, in vectors: a second pass over a row that is
// not longer reads no memory. With the largest block, chains of sums have 64 elements for rows of
// 2^16, and an error below 64 * 2^-24 in the sum, half of that in the root.
template <int kSize>
inline constexpr int kNormKept = kSize == 1 ? 4 : kSize;

// Block (row, group): a group of `size` elements of a row of x.
template <int kSize>
LaunchShape NormShape(const TensorView& x, int64_t size) {
  return {.blocks = {static_cast<uint32_t>(x.shape[0]), DivideUp(x.RowElements(), size)},
          .threads = {BlockThreads(size, kNormKept<kSize>)},
          .early = true};
}

// True if weights can be loaded in vectors.
inline bool AreAlignedWeights(const TensorView& w) {
  return reinterpret_cast<uintptr_t>(w.data) % 16 == 0;
}

// WithVectorSize() of rows and of weights.
template <typename T, typename Body, typename... Views>
void WithNormVectorSize(int64_t size, const Body& body, const TensorView& w,
                        const Views&... views) {
  if (!AreAlignedWeights(w)) return body.template operator()<1>();
  WithVectorSize<T>(size, body, views...);
}

template <int kSize>
PAGEMILL_DEVICE void LoadWeights(const float* from, float (&w)[kSize]) {
  if constexpr (kSize == 1) {
    w[0] = *from;
  } else {
    PAGEMILL_UNROLL
    for (int j = 0; j < kSize; j += 4) {
      const auto four = *reinterpret_cast<const Vector<float, 4>*>(from + j);
      PAGEMILL_UNROLL
      for (int k = 0; k < 4; ++k) w[j + k] = four.values[k];
    }
  }
}

template <typename T, int kSize>
PAGEMILL_DEVICE float SumOfSquares(const Vector<T, kSize>& x, float squares = 0) {
  PAGEMILL_UNROLL
  for (int j = 0; j < kSize; ++j) squares += ToFloat(x.values[j]) * ToFloat(x.values[j]);
  return squares;
}

template <typename T, int kSize>
PAGEMILL_DEVICE Vector<T, kSize> Scaled(const Vector<T, kSize>& x, float factor,
                                        const float (&w)[kSize], float offset) {
  Vector<T, kSize> scaled;
  PAGEMILL_UNROLL
  for (int j = 0; j < kSize; ++j) {
    scaled.values[j] = FromFloat<T>(ToFloat(x.values[j]) * factor * (w[j] + offset));
  }
  return scaled;
}

// y = x * (mean of squares + eps)^-0.5 * (w + offset) for a row x of `size` elements, a multiple of
// kSize; w is aligned if that is not 1. Every thread of the block calls it. make(i) gives elements
// [i, i + kSize) of x as a Vector<T, kSize>, and read(i) the same once more, for what is not kept.
// A thread writes only elements of y whose x it has read, after its last read of them: y may be x.
template <typename T, int kSize, typename Make, typename Read>
PAGEMILL_DEVICE void NormalizeRow(const Make& make, const Read& read, const float* w, T* y,
                                  int64_t size, float eps, float offset) {
  using Elements = Vector<T, kSize>;
  constexpr int kVectors = kNormKept<kSize> / kSize;
  // Not of 64 bits: with those nvcc stores vectors of 16 bytes an element at a time.
  const auto first = static_cast<int32_t>(ThreadIndex().x * kSize);
  const auto step = static_cast<int32_t>(BlockSize().x * kSize);
  float squares = 0;
  Elements kept[kVectors];
  float kept_w[kVectors][kSize];  // under way while squares are added up
  PAGEMILL_UNROLL
  for (int k = 0; k < kVectors; ++k) {
    const int32_t i = first + k * step;
    if (i >= size) break;
    LoadWeights(w + i, kept_w[k]);
    kept[k] = make(i);
    squares = SumOfSquares(kept[k], squares);
  }
  for (int32_t i = first + kVectors * step; i < size; i += step) {
    squares = SumOfSquares(make(i), squares);
  }
  const float factor = InverseSqrt(BlockSum(squares) / static_cast<float>(size) + eps);
  PAGEMILL_UNROLL
  for (int k = 0; k < kVectors; ++k) {
    const int32_t i = first + k * step;
    if (i >= size) break;
    *reinterpret_cast<Elements*>(y + i) = Scaled(kept[k], factor, kept_w[k], offset);
  }
  for (int32_t i = first + kVectors * step; i < size; i += step) {
    float of_w[kSize];
    LoadWeights(w + i, of_w);
    *reinterpret_cast<Elements*>(y + i) = Scaled(read(i), factor, of_w, offset);
  }
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_RMS_NORM_RMS_NORM_ROW_H_
