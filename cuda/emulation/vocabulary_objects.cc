#include "cuda/emulation/vocabulary_kernels.h"

namespace pagemill::gpu {

template __global__ void SumRows<Mutation::kNone>(const float*, int, float*);
template __global__ void ReverseGroups<Mutation::kNone>(const float*, float*);

}  // namespace pagemill::gpu
