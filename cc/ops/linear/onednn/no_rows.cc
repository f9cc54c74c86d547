// Built without oneDNN.
#include "cc/ops/linear/onednn/onednn_rows.h"

namespace pagemill::ops::linear {

std::span<const KernelRow> OnednnRows() { return {}; }

}  // namespace pagemill::ops::linear
