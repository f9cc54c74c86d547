// File: cuda/ops/linear/wgmma_rows.h
// The product of weights in fp8 and few rows of bf16 activations, which are rounded to fp8, on GPUs
// of compute capability 9.0: the precision kF8 of linear.h, with a scale for kF8Columns columns of a
// row of x. In the words of gpu_wgmma.h, in equal shares (wgmma_shares.h), whose steps have kF8Columns
// columns.
#ifndef PAGEMILL_CUDA_OPS_LINEAR_WGMMA_ROWS_H_
#define PAGEMILL_CUDA_OPS_LINEAR_WGMMA_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "cc/device/capabilities.h"
#include "cc/device/stream.h"
#include "cc/tensor/tensor_view.h"
#include "cuda/ops/linear/tensor_cores.h"

namespace pagemill::gpu {

inline constexpr int64_t kMostWgmmaRows = 64;  // of x

// True for such a GPU, and weights that HaveF8Stages() and FitsTensorCores().
bool FitsWgmmaRows(const device::Capabilities& caps, const TensorView& x, const TensorView& w);

// Of workspace, for `rows` rows of x or fewer.
int64_t WgmmaRowsBytes(int64_t rows);

// At most kMostWgmmaRows rows of x, which HasAlignedRows(); weights that AreF8StagesRead(), with
// outputs.
// `workspace` is aligned to 64 bytes.
void MultiplyWgmmaRows(const TensorView& x, std::span<const Product> products,
                       std::byte* workspace, device::Stream& stream);

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_LINEAR_WGMMA_ROWS_H_
