// File: cc/ops/kv_write/kv_scales.h
// Scales of the keys and values in an f8_e4m3 cache: attributes `k_scale` and `v_scale` (> 0, by
// default 1) of the ops that write and read it. A stored number times its scale is the key or
// value. The scales keep calibrated keys and values within the type's range; caches of other types
// have their own scales (int8) or none, and ignore these.
//
//   const KvScales scales = KvScalesOf(*call.attributes, cache.dtype);
//   page[i] = FloatToF8E4M3(k * (1.0f / scales.k));
#ifndef PAGEMILL_CC_OPS_KV_WRITE_KV_SCALES_H_
#define PAGEMILL_CC_OPS_KV_WRITE_KV_SCALES_H_

#include <cmath>
#include <string>

#include "cc/ops/op.h"
#include "cc/ops/operand_check.h"

namespace pagemill::ops {

struct KvScales {
  float k = 1;
  float v = 1;
};

inline KvScales KvScalesOf(const Attributes& attributes, DType cache) {
  if (cache != DType::kF8E4M3) return {};
  return {.k = static_cast<float>(attributes.Get("k_scale", 1)),
          .v = static_cast<float>(attributes.Get("v_scale", 1))};
}

inline void CheckKvScales(const OpCall& call, OperandCheck& check) {
  for (const char* name : {"k_scale", "v_scale"}) {
    const auto scale = static_cast<float>(call.attributes->Get(name, 1));
    check.Require(scale > 0 && std::isfinite(1.0f / scale) && std::isfinite(scale),
                  std::string("attribute ") + name + " must be a number above 0");
  }
}

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_KV_WRITE_KV_SCALES_H_
