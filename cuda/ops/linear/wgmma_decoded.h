// File: cuda/ops/linear/wgmma_decoded.h
// The product of weights of few bits and some rows of bf16 activations on GPUs of compute capability
// 9.0: weights become bf16 once for all rows of x, in shared memory, where the words of gpu_wgmma.h
// multiply them. In equal shares (wgmma_shares.h).
#ifndef PAGEMILL_CUDA_OPS_LINEAR_WGMMA_DECODED_H_
#define PAGEMILL_CUDA_OPS_LINEAR_WGMMA_DECODED_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "cc/device/stream.h"
#include "cc/tensor/tensor_view.h"
#include "cuda/ops/linear/tensor_cores.h"

namespace pagemill::gpu {

// Of x. With fewer rows, warps that decode weights for themselves lose less.
inline constexpr int64_t kFewestDecodedRows = 17, kMostDecodedRows = 128;

// True for these rows of x, which HasAlignedRows(), on such a GPU, and weights that
// AreReadOnTensorCores(): integers and floats of 4 bits and blocks of GGUF, with whole spans of
// columns and groups that follow each other.
bool AreDecodedRows(const TensorView& x, const TensorView& w, device::Stream& stream);

// Of workspace, for `rows` rows of x or fewer and such weights, also on other GPUs. Reads no weights.
int64_t DecodedRowsBytes(int64_t rows, const TensorView& w);

// Products that AreDecodedRows(). `workspace` is aligned to 64 bytes.
void MultiplyDecodedRows(const TensorView& x, std::span<const Product> products,
                         std::byte* workspace, device::Stream& stream);

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_LINEAR_WGMMA_DECODED_H_
