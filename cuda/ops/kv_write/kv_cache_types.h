// File: cuda/ops/kv_write/kv_cache_types.h
// Element types of paged KV caches (cc/ops/kv_write/kv_write.h) in kernels.
//
//   WithCacheType(cache.dtype, [&]<typename C>(C) { Launch(..., Kernel<C>, ...); });
#ifndef PAGEMILL_CUDA_OPS_KV_WRITE_KV_CACHE_TYPES_H_
#define PAGEMILL_CUDA_OPS_KV_WRITE_KV_CACHE_TYPES_H_

#include <cstdint>
#include <type_traits>

#include "cc/tensor/dtype.h"
#include "cc/tensor/float8.h"
#include "cuda/gpu_rows.h"
#include "cuda/gpu_vendor.h"

namespace pagemill::gpu {

struct Float8 {
  uint8_t bits;
};
// With a scale for each row, stored behind the block's values.
struct ScaledInt8 {
  int8_t value;
};
// A byte of a block with values of int4, and keys of int4 or int8, which differ at run time alone:
// one kernel has both. Rows have scales, likewise.
struct Int4Values {
  uint8_t byte;
};
template <typename C>
constexpr bool kHasRowScales = std::is_same_v<C, ScaledInt8> || std::is_same_v<C, Int4Values>;

PAGEMILL_DEVICE float ToFloat(Float8 value) { return F8E4M3ToFloat(value.bits); }
PAGEMILL_DEVICE float ToFloat(ScaledInt8 value) { return static_cast<float>(value.value); }

// Not for types with scales, whose rows are rounded as a whole.
template <typename C>
PAGEMILL_DEVICE C ToCache(float value) {
  if constexpr (std::is_same_v<C, Float8>) {
    return {FloatToF8E4M3(value)};
  } else {
    return FromFloat<C>(value);
  }
}

template <typename Body>
void WithCacheType(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::kF32: return body(float{});
    case DType::kBF16: return body(BFloat16{});
    case DType::kF8E4M3: return body(Float8{});
    case DType::kI8: return body(ScaledInt8{});
    case DType::kU4:
    case DType::kK8V4:
      return body(Int4Values{});
    default: PAGEMILL_CHECK(false);
  }
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_KV_WRITE_KV_CACHE_TYPES_H_
