// The table of GPU ops: one line for each op folder, sorted by name.
#include "cuda/ops_table.h"

#include "cc/ops/device_table.h"
#include "cuda/ops/add/add.h"
#include "cuda/ops/add_rms_norm/add_rms_norm.h"
#include "cuda/ops/argmax/argmax.h"
#include "cuda/ops/embedding/embedding.h"
#include "cuda/ops/kv_write/kv_write.h"
#include "cuda/ops/linear/linear.h"
#include "cuda/ops/mask_tokens/mask_tokens.h"
#include "cuda/ops/paged_attention/paged_attention.h"
#include "cuda/ops/rms_norm/rms_norm.h"
#include "cuda/ops/rotary/rotary.h"
#include "cuda/ops/rotary_kv_write/rotary_kv_write.h"
#include "cuda/ops/select_rows/select_rows.h"
#include "cuda/ops/take_tokens/take_tokens.h"

namespace pagemill::gpu {

std::span<const ops::OpDefinition> GpuOps() {
  static const ops::OpKernels kRows[] = {
      {"add", AddKernels()},
      {"add_rms_norm", AddRmsNormKernels()},
      {"argmax", ArgmaxKernels()},
      {"embedding", EmbeddingKernels()},
      {"kv_write", KvWriteKernels()},
      {"linear", LinearKernels()},
      {"mask_tokens", MaskTokensKernels()},
      {"paged_attention", PagedAttentionKernels()},
      {"rms_norm", RmsNormKernels()},
      {"rotary", RotaryKernels()},
      {"rotary_kv_write", RotaryKvWriteKernels()},
      {"select_rows", SelectRowsKernels()},
      {"take_tokens", TakeTokensKernels()},
  };
  static const ops::DeviceTable table(kRows);
  return table.definitions();
}

}  // namespace pagemill::gpu
