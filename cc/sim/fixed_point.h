// File: cc/sim/fixed_point.h
// Logarithm, power and root in integers, with the same bits on every machine; libm does not
// guarantee that, nor does double arithmetic if the compiler fuses multiply-adds. Values are
// unsigned or signed 64-bit integers with 32 fraction bits ("Q32": 1.0 is kOne).
//
//   uint64_t root_two = Exp2(kOne / 2);           // 1.41421356 in Q32
//   int64_t minus_one = Log2(kOne / 2);           // -1.0 in Q32
//
// Errors are below 2^-30 relative (Exp2) and 2^-31 absolute (Log2). Not for hot paths.
#ifndef PAGEMILL_CC_SIM_FIXED_POINT_H_
#define PAGEMILL_CC_SIM_FIXED_POINT_H_

#include <cstdint>

namespace pagemill::sim {

__extension__ using Uint128 = unsigned __int128;

inline constexpr uint64_t kOne = uint64_t{1} << 32;
inline constexpr uint64_t kLn2 = 2977044472;  // ln 2 in Q32

// The largest integer whose square is at most `x`.
constexpr uint64_t SquareRoot(Uint128 x) {
  uint64_t root = 0;
  for (int bit = 63; bit >= 0; --bit) {
    const uint64_t next = root | (uint64_t{1} << bit);
    if (static_cast<Uint128>(next) * next <= x) root = next;
  }
  return root;
}

// a * b / c, rounded down, without overflow in between; the result is at most 2^63 - 1.
constexpr int64_t MulDiv(uint64_t a, uint64_t b, uint64_t c) {
  const Uint128 quotient = static_cast<Uint128>(a) * b / c;
  return quotient > INT64_MAX ? INT64_MAX : static_cast<int64_t>(quotient);
}

// log2 of x > 0; both in Q32.
int64_t Log2(uint64_t x);

// 2 to the power of x; both in Q32. At least 0, at most 2^63 - 1.
uint64_t Exp2(int64_t x);

}  // namespace pagemill::sim

#endif  // PAGEMILL_CC_SIM_FIXED_POINT_H_
