// File: cc/ops/double_dot/double_dot.h
// Dot products for references.
#ifndef PAGEMILL_CC_OPS_DOUBLE_DOT_DOUBLE_DOT_H_
#define PAGEMILL_CC_OPS_DOUBLE_DOT_DOUBLE_DOT_H_

#include <cstdint>

namespace pagemill::ops {

// The sum of a[i] * b[i] for i in [0, size), in double. It has four parts, so that a product does
// not wait for the one before.
template <typename A, typename B>
double DoubleDot(const A& a, const B& b, int64_t size) {
  double parts[4] = {};
  int64_t i = 0;
  for (; i + 4 <= size; i += 4) {
    for (int64_t part = 0; part < 4; ++part) {
      parts[part] += static_cast<double>(a[i + part]) * b[i + part];
    }
  }
  for (; i < size; ++i) parts[0] += static_cast<double>(a[i]) * b[i];
  return (parts[0] + parts[1]) + (parts[2] + parts[3]);
}

}  // namespace pagemill::ops

#endif  // PAGEMILL_CC_OPS_DOUBLE_DOT_DOUBLE_DOT_H_
