// File: cuda/ops/linear/cublas_lt_results.h
// Parts of results that cuBLASLt (cuda/device/cublas_lt.h) writes, rounded once: bf16 results that
// get a bias are sums of f32 in the workspace before. And how a workspace is divided.
//
//   if (!MultiplyPart({.y = y, .first_row = 128, .bias = bias, .sums = sums}, product, stream)) ...
#ifndef PAGEMILL_CUDA_OPS_LINEAR_CUBLAS_LT_RESULTS_H_
#define PAGEMILL_CUDA_OPS_LINEAR_CUBLAS_LT_RESULTS_H_

#include <cstddef>
#include <cstdint>

#include "cc/tensor/tensor_view.h"
#include "cuda/device/cublas_lt.h"
#include "cuda/device/gpu_stream.h"
#include "cuda/gpu_rows.h"

namespace pagemill::gpu {

// Outputs and rows of slices are a multiple of it, or all.
inline constexpr int64_t kSliceUnit = 128;

inline int64_t RoundUp(int64_t count, int64_t unit) { return (count + unit - 1) / unit * unit; }

// The most that fit, of those that there are.
int64_t FittingSlice(int64_t total, int64_t slice_bytes, int64_t bytes_of_one);

// The first address in the workspace at which the library's may begin.
std::byte* AlignedWorkspace(std::byte* workspace);

// Sums of f32, for slices of a result. They are needed if it has a bias and is not f32 itself.
struct SumsOfSlices {
  int64_t rows = 0;    // of a slice
  int64_t stride = 0;  // elements
  int64_t bytes = 0;   // 0: results are written as they are

  // `outputs` are those of a slice; the most of them if several results share the rows.
  static SumsOfSlices Of(int64_t rows, int64_t outputs, bool are_needed, int64_t slice_bytes);
};
inline bool NeedsSums(const TensorView& y, bool has_bias) {
  return has_bias && y.dtype != DType::kF32;
}

// Rows and outputs of y, bf16 or f32 [N, M]; bias [M] may be null. `sums` are where they lie until
// the bias is added; no data if NeedsSums() is false.
struct PartOfResult {
  const TensorView& y;
  int64_t first_row = 0, first_output = 0;
  const float* bias = nullptr;
  Rows<float> sums = {};
};

// Enqueues `product`, whose y is a part of a result. False if the library cannot multiply it.
bool MultiplyPart(const PartOfResult& part, MatrixProduct product, GpuStream& stream);

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_LINEAR_CUBLAS_LT_RESULTS_H_
