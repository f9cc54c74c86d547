// File: cuda/ops/linear/cublas_lt_product.h
// The product of bf16 activations and weights of any format by cuBLASLt
// (cuda/device/cublas_lt.h): for many rows of x. Weights of other formats than bf16 become bf16 in
// the workspace, which pays from some rows on; what is left goes to tensor_cores.h.
//
// Sums are rounded once: bf16 results that get a bias are sums of f32 in the workspace before.
#ifndef PAGEMILL_CUDA_OPS_LINEAR_CUBLAS_LT_PRODUCT_H_
#define PAGEMILL_CUDA_OPS_LINEAR_CUBLAS_LT_PRODUCT_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "cc/device/capabilities.h"
#include "cc/device/stream.h"
#include "cc/tensor/tensor_view.h"
#include "cuda/ops/linear/tensor_cores.h"

namespace pagemill::gpu {

// When the library multiplies, and how much at a time.
struct CublasLtLimits {
  int64_t rows = 33;                         // of x, from which on it does with weights in bf16
  int64_t converted_rows = 128;              // likewise with others, which become bf16
  int64_t slice_bytes = int64_t{64} << 20;  // of weights in bf16, and likewise of sums in f32
};

// True if MultiplyByCublasLt() takes these operands, as FitsTensorCores() has it, and the library
// is installed.
bool FitsCublasLt(const device::Capabilities& caps, const TensorView& x, const TensorView& w);

// Of workspace, for up to x.shape[0] rows; `has_bias` as in the call. Results of several products
// that are joined take JoinedProducts::Bytes() more.
int64_t CublasLtProductBytes(const TensorView& x, const TensorView& w, bool has_bias,
                             const TensorView& y, const CublasLtLimits& limits = {});

// As MultiplyOnTensorCores(), but a row may have other bits beside other rows, and a result beside
// those of other matrices.
void MultiplyByCublasLt(const TensorView& x, std::span<const Product> products,
                        std::byte* workspace, device::Stream& stream,
                        const CublasLtLimits& limits = {});

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_LINEAR_CUBLAS_LT_PRODUCT_H_
