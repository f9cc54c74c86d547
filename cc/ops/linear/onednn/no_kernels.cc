// Built without oneDNN.
#include "cc/ops/linear/onednn/onednn_kernels.h"

namespace pagemill::ops::linear {

std::span<const Kernel> OnednnKernels() { return {}; }

}  // namespace pagemill::ops::linear
