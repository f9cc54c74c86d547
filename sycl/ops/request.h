// File: sycl/ops/request.h
// The requests of a step's batch. Kernel text only.
//
//   const int32_t request = RequestOf(p.query_start, p.requests, token);
#ifndef PAGEMILL_SYCL_OPS_REQUEST_H_
#define PAGEMILL_SYCL_OPS_REQUEST_H_

#include "sycl/ops/kernel.h"

namespace pagemill::sycl {

// The last request whose first token is not after `token`, among those with tokens.
inline int32_t RequestOf(const int32_t* query_start, int32_t requests, int32_t token) {
  int32_t low = 0, high = requests;
  while (high - low > 1) {
    const int32_t middle = (low + high) / 2;
    (query_start[middle] <= token ? low : high) = middle;
  }
  return low;
}

}  // namespace pagemill::sycl

#endif  // PAGEMILL_SYCL_OPS_REQUEST_H_
