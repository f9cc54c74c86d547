// File: sycl/ops/linear/onednn_product.h
// Products of `linear` with many rows by oneDNN. Weights of the type of activations are read as
// they are stored. All others become that type in the workspace, in slices of outputs that are
// multiplied one after the other: they are decoded once for all rows.
#ifndef PAGEMILL_SYCL_OPS_LINEAR_ONEDNN_PRODUCT_H_
#define PAGEMILL_SYCL_OPS_LINEAR_ONEDNN_PRODUCT_H_

#include <cstdint>

#include "cc/ops/op.h"
#include "cc/tensor/tensor_view.h"

namespace pagemill::sycl {

// When the library multiplies, and how much at a time.
struct OnednnLimits {
  int64_t rows = 33;                        // of x, from which on it does
  int64_t slice_bytes = int64_t{64} << 20;  // of weights in the type of activations
};

// Of workspace, for up to x.shape[0] rows.
int64_t OnednnProductBytes(const TensorView& x, const TensorView& w,
                           const OnednnLimits& limits = {});

// Enqueues y = x W^T + bias, for weights that kernels of this tree read; a missing bias is null.
// False if the library is not installed or cannot multiply these: then y is undefined. A row may
// have other bits beside other rows.
bool MultiplyByOnednn(const TensorView& x, const TensorView& w, const float* bias,
                      const TensorView& y, ops::KernelContext& context,
                      const OnednnLimits& limits = {});

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_LINEAR_ONEDNN_PRODUCT_H_
