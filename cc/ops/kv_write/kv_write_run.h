// File: cc/ops/kv_write/kv_write_run.h
// Stores one head of a run of consecutive tokens of a block, for each instruction set. Plain data
// and functions only: files compiled for wide instructions include this header (docs/build.md).
#ifndef PAGEMILL_CC_OPS_KV_WRITE_KV_WRITE_RUN_H_
#define PAGEMILL_CC_OPS_KV_WRITE_KV_WRITE_RUN_H_

#include <cstdint>

namespace pagemill::ops {

struct KvWriteRun {
  const float* k = nullptr;  // first token of the run, [head_dim]
  const float* v = nullptr;  // [value_dim]
  int64_t k_stride = 0;  // elements from one token to the next
  int64_t v_stride = 0;
  void* k_page = nullptr;    // this head's [head_dim, block_size]; int4: int4_row.h
  void* v_page = nullptr;    // this head's [block_size, head_dim]; int4: int4_row.h
  void* k_scales =
      nullptr;  // this head's f32 [block_size], in any alignment; of int8 and int4 rows only
  void* v_scales = nullptr;
  float k_inverse_scale = 1;  // of f8 pages only: factor of keys
  float v_inverse_scale = 1;
  int32_t tokens = 0;  // offset + tokens <= block_size
  int32_t offset = 0;  // of the first token in the block
  int32_t block_size = 0;
  int32_t head_dim = 0;
  int32_t value_dim = 0;  // <= head_dim: zeros are stored behind them
};

// Stores rows of one type: the run's keys, or its values.
struct KvRowStore {
  void (*keys)(const KvWriteRun& run);
  void (*values)(const KvWriteRun& run);
};

// By the type of the rows.
struct KvWriteKernel {
  KvRowStore f32, bf16, f8, int8, int4;
};

extern const KvWriteKernel kKvWritePortable;
extern const KvWriteKernel kKvWriteAvx2;
extern const KvWriteKernel kKvWriteAvx512;

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_KV_WRITE_KV_WRITE_RUN_H_
