// File: sycl/ops/states/state_sizes.h
// The largest state that kernels keep in registers. Included by the host and by the source text of
// kernels.
#ifndef PAGEMILL_SYCL_OPS_STATES_STATE_SIZES_H_
#define PAGEMILL_SYCL_OPS_STATES_STATE_SIZES_H_

#include <cstdint>

namespace pagemill::sycl {

inline constexpr int32_t kMaxStateRows = 256;

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_STATES_STATE_SIZES_H_
