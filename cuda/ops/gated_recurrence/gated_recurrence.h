// File: cuda/ops/gated_recurrence/gated_recurrence.h
// Kernels of `gated_recurrence` (cc/ops/gated_recurrence/gated_recurrence.h) on GPUs.
#ifndef PAGEMILL_CUDA_OPS_GATED_RECURRENCE_GATED_RECURRENCE_H_
#define PAGEMILL_CUDA_OPS_GATED_RECURRENCE_GATED_RECURRENCE_H_

#include <span>

#include "cc/ops/op.h"

namespace pagemill::gpu {

std::span<const ops::Kernel> GatedRecurrenceKernels();

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_GATED_RECURRENCE_GATED_RECURRENCE_H_
