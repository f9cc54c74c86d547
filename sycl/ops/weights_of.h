// File: sycl/ops/weights_of.h
// The weights of an op's call, for kernels.
//
//   bool Supports(const device::Capabilities&, const ops::OpCall& call) {
//     return AreReadable(call.inputs[1]);
//   }
//   ... LinearParams{.w = WeightsOf(call.inputs[1]), ...}
#ifndef PAGEMILL_SYCL_OPS_WEIGHTS_OF_H_
#define PAGEMILL_SYCL_OPS_WEIGHTS_OF_H_

#include "cc/tensor/tensor_view.h"
#include "sycl/ops/weight_matrices.h"

namespace pagemill::sycl {

// True for weights that kernels read as stored: floats, blocks of the GGUF formats, and weights
// with parts.
bool AreReadable(const TensorView& weights);

// `weights` are readable: a matrix, or a stack of them.
WeightMatrices WeightsOf(const TensorView& weights);

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_WEIGHTS_OF_H_
