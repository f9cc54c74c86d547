// File: sycl/ops/all_reduce/gather_elements.h
// What ops exchange with other ranks: rows as one sequence of elements, in pieces for which the
// memory between the ranks has room.
#ifndef PAGEMILL_SYCL_OPS_ALL_REDUCE_GATHER_ELEMENTS_H_
#define PAGEMILL_SYCL_OPS_ALL_REDUCE_GATHER_ELEMENTS_H_

#include <cstdint>

#include "cc/ops/op.h"
#include "cc/tensor/tensor_view.h"
#include "sycl/device/sycl_stream.h"
#include "sycl/ops/all_reduce/all_reduce_params.h"

namespace pagemill::sycl {

// The memory between this stream and those of other ranks; null if it is alone.
const RankMemory* RankMemoryOf(const ops::KernelContext& context);

RowElements ElementsOf(const TensorView& rows, int64_t first, int64_t count);

// Elements [first, first + count) of each rank's `x` go to rank_memory().received of all: those of
// rank r begin at r * count. What is behind a rank's last element is undefined.
void GatherElements(const TensorView& x, int64_t first, int64_t count, ops::KernelContext& context);

// For a rank that is alone: `y` is `x`.
void CopyRows(const TensorView& x, const TensorView& y, ops::KernelContext& context);

// True for collectives of the ranks of a host that share each layer's matrices.
bool AmongRanks(const device::Capabilities& caps, const ops::OpCall& call);

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_ALL_REDUCE_GATHER_ELEMENTS_H_
