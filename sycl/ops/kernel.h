// File: sycl/ops/kernel.h
// What the kernels of this tree are written with. Kernel text only: compiled by the SYCL runtime
// for the device, not by the host's compiler.
//
//   PAGEMILL_KERNEL void add_kernel(AddParams p) {
//     const int64_t i = GlobalId();
//     if (i >= p.rows * p.width) return;
//     ...
//   }
//
// A kernel is a free function with one parameter, in a one-dimensional range of work-groups. Groups
// are made of sub-groups of kLanes work-items. `Act` is the module's type of activations: float,
// Bf16 or F16, read with Load() and written with Store().
#ifndef PAGEMILL_SYCL_OPS_KERNEL_H_
#define PAGEMILL_SYCL_OPS_KERNEL_H_

#include <cstdint>
#include <sycl/sycl.hpp>

#include "cc/tensor/float16.h"
#include "cc/tensor/float8.h"
#include "sycl/ops/operands.h"

#define PAGEMILL_KERNEL                                                                     \
  extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY(                                             \
      (sycl::ext::oneapi::experimental::nd_range_kernel<1>))                                \
      SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((sycl::ext::oneapi::experimental::sub_group_size<16>))

namespace pagemill::sycl {

inline ::sycl::nd_item<1> Item() {
  return ::sycl::ext::oneapi::this_work_item::get_nd_item<1>();
}
inline int64_t GlobalId() { return static_cast<int64_t>(Item().get_global_linear_id()); }
inline int64_t GroupId() { return static_cast<int64_t>(Item().get_group_linear_id()); }
inline int32_t LocalId() { return static_cast<int32_t>(Item().get_local_linear_id()); }
inline int32_t GroupSize() { return static_cast<int32_t>(Item().get_local_range(0)); }
inline ::sycl::group<1> Group() { return Item().get_group(); }
inline ::sycl::sub_group SubGroup() { return Item().get_sub_group(); }
inline int32_t Lane() { return static_cast<int32_t>(SubGroup().get_local_linear_id()); }
// The number of this sub-group among those of all groups.
inline int64_t GlobalSubGroup() { return GlobalId() / kLanes; }

inline constexpr float kInfinity = __builtin_inff();

template <typename T>
struct Bits16 {
  uint16_t bits;
};
using Bf16 = Bits16<struct Bf16Tag>;
using F16 = Bits16<struct F16Tag>;

inline float Load(const float* x) { return *x; }
inline float Load(const Bf16* x) { return Bf16ToFloat(x->bits); }
inline float Load(const F16* x) { return F16ToFloat(x->bits); }
inline void Store(float* x, float value) { *x = value; }
inline void Store(Bf16* x, float value) { x->bits = FloatToBf16(value); }
inline void Store(F16* x, float value) { x->bits = FloatToF16(value); }

// Element `i` of a block of a KV cache.
inline float LoadAs(ElementType type, const void* data, int64_t i) {
  switch (type) {
    case ElementType::kF32:
      return static_cast<const float*>(data)[i];
    case ElementType::kBF16:
      return Bf16ToFloat(static_cast<const uint16_t*>(data)[i]);
    case ElementType::kI8:
      return static_cast<const int8_t*>(data)[i];
    case ElementType::kF8E4M3:
      return F8E4M3ToFloat(static_cast<const uint8_t*>(data)[i]);
    default:
      return 0;
  }
}

}  // namespace pagemill::sycl

using namespace pagemill::sycl;  // kernels are in the global namespace

#endif  // PAGEMILL_SYCL_OPS_KERNEL_H_
