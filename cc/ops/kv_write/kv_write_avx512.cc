// The instruction set comes first.
// clang-format off
#include "cc/ops/vec/vec_avx512.h"
#include "cc/ops/kv_write/kv_write_run_inl.h"
// clang-format on

namespace pagemill::ops {

const KvWriteKernel kKvWriteAvx512 = {StoreRun<float>, StoreRun<uint16_t>, StoreRun<uint8_t>,
                                      QuantizeRun};

}  // namespace pagemill::ops
