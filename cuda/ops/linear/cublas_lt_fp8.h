// File: cuda/ops/linear/cublas_lt_fp8.h
// The product of fp8 weights, as they are stored, and rows of bf16 activations rounded to fp8, by
// cuBLASLt (cuda/device/cublas_lt.h): the precision kF8 of linear.h, for many rows of x. What is
// left goes to cublas_lt_product.h.
//
// With a scale for each row of weights, or for all, a row of x has one; with scales of 128 x 128
// weights, 128 columns of a row of x have one. The library multiplies with the latter in fours of
// rows: those behind the last four are multiplied in bf16.
#ifndef PAGEMILL_CUDA_OPS_LINEAR_CUBLAS_LT_FP8_H_
#define PAGEMILL_CUDA_OPS_LINEAR_CUBLAS_LT_FP8_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "cc/device/capabilities.h"
#include "cc/device/stream.h"
#include "cc/tensor/tensor_view.h"
#include "cuda/device/cublas_lt.h"
#include "cuda/ops/linear/cublas_lt_product.h"
#include "cuda/ops/linear/cublas_lt_results.h"
#include "cuda/ops/linear/tensor_cores.h"

namespace pagemill::gpu {

// True if MultiplyByCublasLtInFp8() takes these operands: as FitsCublasLt() has it, on a GPU whose
// tensor cores the installed library uses for fp8 with scales.
bool FitsCublasLtFp8(const device::Capabilities& caps, const TensorView& x, const TensorView& w);

// The workspace of a call, which grows with the rows of x.
class Fp8Workspace {
 public:
  // `w` is the first matrix.
  Fp8Workspace(const TensorView& x, const TensorView& w, const CublasLtLimits& limits = {});

  // A matrix of the call.
  void Add(const TensorView& w, bool has_bias, const TensorView& y);

  // Without results of products that are joined (joined_products.h), which begin at sums_offset():
  // these have no sums.
  int64_t bytes() const;
  ProductScales scales() const { return scales_; }
  // Of x, that the library multiplies. 0: too few.
  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  // Of columns of a row of x, with a scale each.
  int64_t groups() const { return groups_; }
  SumsOfSlices sums() const;

  // Where things are, from the beginning of the library's own workspace.
  int64_t x_offset() const { return kCublasLtWorkspaceBytes; }
  int64_t x_scales_offset() const;
  int64_t w_scales_offset() const;
  int64_t sums_offset() const;

 private:
  const ProductScales scales_;
  const int64_t slice_bytes_;
  const int64_t columns_, groups_, rows_;
  int64_t w_scales_ = 0;  // of all matrices
  int64_t most_summed_outputs_ = 0;
};

// As MultiplyByCublasLt(), with x rounded to fp8. `workspace` has room for either: that of
// CublasLtProductBytes(), and of Fp8Workspace.
void MultiplyByCublasLtInFp8(const TensorView& x, std::span<const Product> products,
                             std::byte* workspace, device::Stream& stream,
                             const CublasLtLimits& limits = {});

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_LINEAR_CUBLAS_LT_FP8_H_
