// File: cc/comm/reduction.h
// Element-wise sums over ranks, in rank order.
//
//   SumInOrder(DType::kBF16, parts, out, count);
//
// bf16 and f16 are added in f32 and each sum is rounded once; i32 wraps around. Elements must be
// aligned for their type. Allocates nothing; thread-safe.
#ifndef PAGEMILL_CC_COMM_REDUCTION_H_
#define PAGEMILL_CC_COMM_REDUCTION_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "cc/tensor/dtype.h"

namespace pagemill::comm {

// out[i] = parts[0][i] + parts[1][i] + ..., of `count` elements. `dtype` is f32, bf16, f16 or i32;
// `out` may be one of the parts.
void SumInOrder(DType dtype, std::span<const std::byte* const> parts, std::byte* out,
                int64_t count);

}  // namespace pagemill::comm

#endif  // PAGEMILL_CC_COMM_REDUCTION_H_
