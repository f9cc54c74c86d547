// File: cuda/ops/all_reduce/rank_sum.h
// What sums over ranks share: the sum of one vector, and how the ranks exchange data.
#ifndef PAGEMILL_CUDA_OPS_ALL_REDUCE_RANK_SUM_H_
#define PAGEMILL_CUDA_OPS_ALL_REDUCE_RANK_SUM_H_

#include <cstdint>

#include "cc/tensor/tensor_view.h"
#include "cuda/gpu_vendor.h"

namespace pagemill::gpu {

// The sum of parts[r * stride] over ranks r, in f32 and rounded once.
template <typename T, int kSize>
PAGEMILL_DEVICE Vector<T, kSize> SumOf(const Vector<T, kSize>* parts, int64_t stride, int ranks) {
  Vector<T, kSize> item = parts[0];
  float sums[kSize];
  PAGEMILL_UNROLL
  for (int k = 0; k < kSize; ++k) sums[k] = ToFloat(item.values[k]);
  for (int r = 1; r < ranks; ++r) {
    item = parts[r * stride];
    PAGEMILL_UNROLL
    for (int k = 0; k < kSize; ++k) sums[k] += ToFloat(item.values[k]);
  }
  PAGEMILL_UNROLL
  for (int k = 0; k < kSize; ++k) item.values[k] = FromFloat<T>(sums[k]);
  return item;
}

// One shot: each rank sends everything to all, and adds everything. Two shots: each rank adds a
// part, and sends the sums to all.
enum class Way { kOneShot, kTwoShot };

// True if an exchange of x costs more than what it sends: some 3 us, in which 8 ranks send 256 KiB
// over NVLink to all others. A guess, which nothing has measured yet.
inline bool IsLittle(const TensorView& x) {
  constexpr int64_t kLittleBytes = 256 << 10;
  return RowBytes(x.dtype, x.Elements()) <= kLittleBytes;
}

// The one that is faster for x. Of two ranks, either sends as much with both.
inline Way FasterWay(const TensorView& x, int64_t ranks) {
  return ranks <= 2 || IsLittle(x) ? Way::kOneShot : Way::kTwoShot;
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_ALL_REDUCE_RANK_SUM_H_
