// File: cuda/ops/linear/row_products.h
// Products of rows of x with rows of a matrix of weights (weights.h), in float, as `linear` computes
// them: a block has some outputs of kRowsAtOnce rows of x, and reads each weight once for them.
//
// Weights that lie in rows: kProductLanes threads for an output sum every kProductLanes-th group of
// eight columns, then add up their sums. Others, whose neighbours in memory are of other rows: a
// thread for an output in each of kSplits parts, which interleave in the same way; the parts are
// added up in order. So bits depend on the rows and their size alone.
//
//   const float* x[kRowsAtOnce] = ...;        // `rows` of them
//   float sums[kRowsAtOnce];
//   const BlockOutputs<W> outputs(/*first=*/BlockIndex().x * BlockOutputs<W>::kCount, num_outputs);
//   outputs.Multiply(x, rows, weights, /*matrix=*/0, columns, sums);
//   if (!outputs.HasSums()) return;
//   ... sums, which are those of outputs.own()
//
// Every thread of a block of BlockOutputs<W>::kThreads calls Multiply(), once.
#ifndef PAGEMILL_CUDA_OPS_LINEAR_ROW_PRODUCTS_H_
#define PAGEMILL_CUDA_OPS_LINEAR_ROW_PRODUCTS_H_

#include <cstdint>

#include "cuda/gpu_reduce.h"
#include "cuda/gpu_vendor.h"
#include "cuda/ops/linear/weights.h"

namespace pagemill::gpu {

inline constexpr int kProductLanes = 32;  // for one output, also where warps have 64
inline constexpr int kRowsAtOnce = 4;     // of x, for each weight that is read

template <typename W>
class BlockOutputs {
 public:
  static constexpr int kCount = W::kLiesInRows ? 4 : 32;
  static constexpr int kSplits = W::kLiesInRows ? kProductLanes : 16;
  static constexpr int kThreads = kCount * kSplits;

  // Of `outputs`, the block has those from `first` on.
  PAGEMILL_DEVICE BlockOutputs(int64_t first, int64_t outputs)
      : thread_(static_cast<int>(ThreadIndex().x)),
        own_(first + (W::kLiesInRows ? thread_ / kSplits : thread_ % kCount)),
        exists_(own_ < outputs) {}

  PAGEMILL_DEVICE int64_t own() const { return own_; }
  PAGEMILL_DEVICE bool HasSums() const { return exists_ && Split() == 0; }

  template <typename T>
  PAGEMILL_DEVICE void Multiply(const T* const (&x)[kRowsAtOnce], int rows, const W& weights,
                                int64_t matrix, int64_t columns,
                                float (&sums)[kRowsAtOnce]) const {
    // A thread without an output sums with the others.
    const typename W::Row row = weights.At(matrix, exists_ ? own_ : 0);
    AddColumns(x, rows, row, columns, sums);
    if constexpr (W::kLiesInRows) {
      PAGEMILL_UNROLL
      for (int i = 0; i < kRowsAtOnce; ++i) sums[i] = WarpReduce(sums[i], Sum{}, kProductLanes);
    } else {
      PAGEMILL_SHARED(float[kSplits][kRowsAtOnce][kCount], parts);
      PAGEMILL_UNROLL
      for (int i = 0; i < kRowsAtOnce; ++i) parts[Split()][i][thread_ % kCount] = sums[i];
      SyncBlock();
      if (!HasSums()) return;
      for (int split = 1; split < kSplits; ++split) {
        PAGEMILL_UNROLL
        for (int i = 0; i < kRowsAtOnce; ++i) sums[i] += parts[split][i][thread_];
      }
    }
    if constexpr (W::kHasFactors) {
      PAGEMILL_UNROLL
      for (int i = 0; i < kRowsAtOnce; ++i) sums[i] *= row.Factor();
    }
  }

 private:
  PAGEMILL_DEVICE int Split() const {
    return W::kLiesInRows ? thread_ % kSplits : thread_ / kCount;
  }

  // sums = the thread's part of each product.
  template <typename T>
  PAGEMILL_DEVICE void AddColumns(const T* const (&x)[kRowsAtOnce], int rows,
                                  const typename W::Row& row, int64_t columns,
                                  float (&sums)[kRowsAtOnce]) const {
    PAGEMILL_UNROLL
    for (int i = 0; i < kRowsAtOnce; ++i) sums[i] = 0;
    for (int64_t k = Split() * kWeightsAtOnce; k < columns; k += kSplits * kWeightsAtOnce) {
      const int64_t left = columns - k;
      const int count = left < kWeightsAtOnce ? static_cast<int>(left) : kWeightsAtOnce;
      float of_w[kWeightsAtOnce], of_x[kWeightsAtOnce];
      row.Load(k, count, of_w);
      PAGEMILL_UNROLL
      for (int i = 0; i < kRowsAtOnce; ++i) {
        if (i >= rows) break;
        LoadElements(x[i] + k, count, of_x);
        PAGEMILL_UNROLL
        for (int j = 0; j < kWeightsAtOnce; ++j) sums[i] += of_w[j] * of_x[j];
      }
    }
  }

  int thread_;
  int64_t own_;
  bool exists_;
};

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_LINEAR_ROW_PRODUCTS_H_
