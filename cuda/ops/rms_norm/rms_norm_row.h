// File: cuda/ops/rms_norm/rms_norm_row.h
// Root mean square normalization of a row by a block, in kernels that read or make the row.
//
//   WithVectorSize<T>(size, [&]<int kSize>() {
//     Launch(stream, NormShape<kSize>(x, size), Kernel<T, kSize>, ...);  // it calls AwaitInputs()
//   }, x, y);
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

// y = x * (mean of squares + eps)^-0.5 * (w + offset) for a row x of `size` elements, a multiple of
// kSize. Every thread of the block calls it. make(i) gives elements [i, i + kSize) of x as a
// Vector<T, kSize>, and read(i) the same once more, for what is not kept. A thread writes only
// elements of y whose x it has read, after its last read of them: y may be x.
template <typename T, int kSize, typename Make, typename Read>
PAGEMILL_DEVICE void NormalizeRow(const Make& make, const Read& read, const float* w, T* y,
                                  int64_t size, float eps, float offset) {
  using Elements = Vector<T, kSize>;
  constexpr int kVectors = kNormKept<kSize> / kSize;
  const int64_t first = int64_t{ThreadIndex().x} * kSize, step = int64_t{BlockSize().x} * kSize;
  float squares = 0;
  const auto add_squares = [&](const Elements& x) {
    PAGEMILL_UNROLL
    for (int j = 0; j < kSize; ++j) squares += ToFloat(x.values[j]) * ToFloat(x.values[j]);
  };
  Elements kept[kVectors];
  float kept_w[kVectors][kSize];  // under way while squares are added up
  PAGEMILL_UNROLL
  for (int k = 0; k < kVectors; ++k) {
    const int64_t i = first + k * step;
    if (i >= size) break;
    PAGEMILL_UNROLL
    for (int j = 0; j < kSize; ++j) kept_w[k][j] = w[i + j];
    kept[k] = make(i);
    add_squares(kept[k]);
  }
  for (int64_t i = first + kVectors * step; i < size; i += step) add_squares(make(i));
  const float factor = InverseSqrt(BlockSum(squares) / static_cast<float>(size) + eps);
  const auto store = [&](int64_t i, const Elements& x, const float* of_w) {
    Elements scaled;
    PAGEMILL_UNROLL
    for (int j = 0; j < kSize; ++j) {
      scaled.values[j] = FromFloat<T>(ToFloat(x.values[j]) * factor * (of_w[j] + offset));
    }
    *reinterpret_cast<Elements*>(y + i) = scaled;
  };
  PAGEMILL_UNROLL
  for (int k = 0; k < kVectors; ++k) {
    if (first + k * step >= size) break;
    store(first + k * step, kept[k], kept_w[k]);
  }
  for (int64_t i = first + kVectors * step; i < size; i += step) store(i, read(i), w + i);
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_RMS_NORM_RMS_NORM_ROW_H_
