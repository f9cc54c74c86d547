#ifndef PAGEMILL_SYCL_OPS_KV_WRITE_KV_WRITE_PARAMS_H_
#define PAGEMILL_SYCL_OPS_KV_WRITE_KV_WRITE_PARAMS_H_

#include "sycl/ops/operands.h"

namespace pagemill::sycl {

struct KvWriteParams {
  Rows k;                          // rows of heads of head_dim elements
  Rows v;                          // rows of heads of value_dim elements, stored with zeros behind
  Rows cache;                      // rows are blocks
  const int32_t* slots = nullptr;  // [tokens]
  ElementType type = ElementType::kF32;  // of the cache
  int64_t tokens = 0, heads = 0, head_dim = 0, value_dim = 0, block_size = 0;
  float k_factor = 1, v_factor = 1;  // of an fp8 cache
};

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_KV_WRITE_KV_WRITE_PARAMS_H_
