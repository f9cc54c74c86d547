// File: cuda/ops/kv_write/kv_cache_types.h
// Element types of paged KV caches (cc/ops/kv_write/kv_write.h) in kernels.
//
//   WithCacheType(cache.dtype, [&]<typename C>(C) { Launch(..., Kernel<C>, ...); });
#ifndef PAGEMILL_CUDA_OPS_KV_WRITE_KV_CACHE_TYPES_H_
#define PAGEMILL_CUDA_OPS_KV_WRITE_KV_CACHE_TYPES_H_

#include <cstddef>
#include <cstdint>

#include "cc/device/capabilities.h"
#include "cc/ops/kv_page.h"
#include "cc/ops/op.h"
#include "cc/tensor/dtype.h"
#include "cc/tensor/float8.h"
#include "cuda/gpu_rows.h"
#include "cuda/gpu_vendor.h"
#include "cuda/ops/gpu_support.h"

namespace pagemill::gpu {

struct Float8 {
  uint8_t bits;
};
// With a scale for each row, stored behind the block's elements.
struct ScaledInt8 {
  int8_t value;
};

PAGEMILL_DEVICE float ToFloat(Float8 value) { return F8E4M3ToFloat(value.bits); }
PAGEMILL_DEVICE float ToFloat(ScaledInt8 value) { return static_cast<float>(value.value); }

// Not for ScaledInt8, which is rounded by rows.
template <typename C>
PAGEMILL_DEVICE C ToCache(float value) {
  if constexpr (std::is_same_v<C, Float8>) {
    return {FloatToF8E4M3(value)};
  } else {
    return FromFloat<C>(value);
  }
}

// `Kernel::supports` of kernels whose input `kCache` is the cache: all types without int4 rows.
template <size_t kCache>
bool HasCacheType(const device::Capabilities& caps, const ops::OpCall& call) {
  return OnEveryGpu(caps, call) && !ops::HasInt4Rows(call.inputs[kCache].dtype);
}

template <typename Body>
void WithCacheType(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::kF32: return body(float{});
    case DType::kBF16: return body(BFloat16{});
    case DType::kF8E4M3: return body(Float8{});
    case DType::kI8: return body(ScaledInt8{});
    default: PAGEMILL_CHECK(false);
  }
}

}  // namespace pagemill::gpu

#endif  // PAGEMILL_CUDA_OPS_KV_WRITE_KV_CACHE_TYPES_H_
