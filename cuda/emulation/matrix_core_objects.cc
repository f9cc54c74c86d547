#include "cuda/emulation/matrix_core_kernels.h"

namespace pagemill::gpu {

// Compilers of GPUs compile the kernels that something names.
extern const void* const kMatrixCoreKernels[];
const void* const kMatrixCoreKernels[] = {
    reinterpret_cast<const void*>(MultiplyOnMatrixCores<32, BFloat16>),
    reinterpret_cast<const void*>(MultiplyOnMatrixCores<32, uint8_t>),
    reinterpret_cast<const void*>(MultiplyOnMatrixCores<64, BFloat16>),
    reinterpret_cast<const void*>(MultiplyOnMatrixCores<64, uint8_t>),
};

}  // namespace pagemill::gpu
