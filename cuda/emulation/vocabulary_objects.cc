#include "cuda/emulation/vocabulary_kernels.h"

namespace pagemill::gpu {

// Compilers of GPUs compile the kernels that something names.
extern const void* const kVocabularyKernels[];
const void* const kVocabularyKernels[] = {
    reinterpret_cast<const void*>(SumRows<Mutation::kNone>),
    reinterpret_cast<const void*>(ReverseGroups<Mutation::kNone>),
    reinterpret_cast<const void*>(SwapWithPeer<Mutation::kNone>),
    reinterpret_cast<const void*>(MultiplyTile<BFloat16, float>),
    reinterpret_cast<const void*>(MultiplyTile<int8_t, int32_t>),
    reinterpret_cast<const void*>(TransposeMatrices),
    reinterpret_cast<const void*>(VoteAndBroadcast),
};

}  // namespace pagemill::gpu
