#include "cc/sim/random.h"

#include "cc/sim/fixed_point.h"

namespace pagemill::sim {

uint64_t Random::Below(uint64_t n) {
  return static_cast<uint64_t>(static_cast<Uint128>(Next()) * n >> 64);
}

int64_t Random::Exponential(int64_t mean) {
  const uint64_t uniform = (Next() >> 32) + 1;  // (0, 1] in Q32
  const auto minus_log2 = static_cast<uint64_t>(-Log2(uniform));
  const auto minus_ln = static_cast<uint64_t>(MulDiv(minus_log2, kLn2, kOne));
  return MulDiv(minus_ln, static_cast<uint64_t>(mean), kOne);
}

// Marsaglia's polar method (G. Marsaglia, T. A. Bray, SIAM Review 6, 1964).
int64_t Random::Normal() {
  while (true) {
    const uint64_t bits = Next();
    const int64_t u = static_cast<int32_t>(bits >> 32);  // [-1, 1) with 31 fraction bits
    const int64_t v = static_cast<int32_t>(static_cast<uint32_t>(bits));
    const uint64_t s = static_cast<uint64_t>(u * u + v * v) >> 30;  // Q32
    if (s == 0 || s >= kOne) continue;
    const auto minus_ln =
        static_cast<uint64_t>(MulDiv(static_cast<uint64_t>(-Log2(s)), kLn2, kOne));
    const auto ratio = static_cast<uint64_t>(MulDiv(2 * minus_ln, kOne, s));
    const uint64_t root = SquareRoot(static_cast<Uint128>(ratio) << 32);
    const int64_t size = MulDiv(static_cast<uint64_t>(u < 0 ? -u : u), root, uint64_t{1} << 31);
    return u < 0 ? -size : size;
  }
}

}  // namespace pagemill::sim
