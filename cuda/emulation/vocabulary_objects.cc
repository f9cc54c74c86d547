#include "cuda/emulation/vocabulary_kernels.h"

namespace pagemill::gpu {

template __global__ void SumRows<Mutation::kNone>(const float*, int, float*);
template __global__ void ReverseGroups<Mutation::kNone>(const float*, float*);
template __global__ void MultiplyTile<BFloat16, float>(const BFloat16*, const BFloat16*, int,
                                                       float*);
template __global__ void MultiplyTile<int8_t, int32_t>(const int8_t*, const int8_t*, int, int32_t*);

}  // namespace pagemill::gpu
