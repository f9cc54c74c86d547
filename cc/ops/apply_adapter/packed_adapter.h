// File: cc/ops/apply_adapter/packed_adapter.h
// An adapter's matrices for one linear layer, copied from a checkpoint's tensors into the layout of
// kernels.
//
//   PAGEMILL_ASSIGN_OR_RETURN(PackedAdapter adapter,
//                             PackedAdapter::Make({.a = a, .b = b, .scale = 2}, /*out=*/m, k));
//   table[slot] = adapter.matrices();   // valid as long as `adapter`
#ifndef PAGEMILL_CC_OPS_APPLY_ADAPTER_PACKED_ADAPTER_H_
#define PAGEMILL_CC_OPS_APPLY_ADAPTER_PACKED_ADAPTER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cc/base/status.h"
#include "cc/ops/apply_adapter/adapter_matrices.h"
#include "cc/tensor/tensor_view.h"

namespace pagemill::ops {

// Views of rank 0 are missing.
struct AdapterTensors {
  TensorView a;  // f32, bf16 or f16 [rank, K]
  TensorView b;  // f32, bf16 or f16 [M, rank]; there if `a` is
  float scale = 1;
  TensorView gain;    // f32 [M]
  TensorView offset;  // f32 [M]
};

class PackedAdapter {
 public:
  PackedAdapter() = default;
  // For a layer of `out` x `in`. Stays bf16 if both matrices are, else becomes f32: exact.
  // kInvalidArgument names the tensor that does not fit.
  static StatusOr<PackedAdapter> Make(const AdapterTensors& tensors, int64_t out, int64_t in);

  // Valid until this object is destroyed; moving it keeps the addresses.
  const AdapterMatrices& matrices() const { return matrices_; }
  int64_t bytes() const;

 private:
  std::vector<std::byte> a_, b_;
  std::vector<float> gain_, offset_;
  AdapterMatrices matrices_;
};

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_APPLY_ADAPTER_PACKED_ADAPTER_H_
