// File: cuda/ops/moe_route/moe_route.h
// Kernels of `moe_route` (cc/ops/moe_route/moe_route.h) on GPUs.
#ifndef PAGEMILL_CUDA_OPS_MOE_ROUTE_MOE_ROUTE_H_
#define PAGEMILL_CUDA_OPS_MOE_ROUTE_MOE_ROUTE_H_

#include <span>

#include "cc/ops/op.h"

namespace pagemill::gpu {

std::span<const ops::Kernel> MoeRouteKernels();

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_MOE_ROUTE_MOE_ROUTE_H_
