#include "cc/sim/fixed_point.h"

#include <array>
#include <bit>

namespace pagemill::sim {
namespace {

constexpr int kFractionBits = 32;

// kRoots[i] = 2^(2^-(i+1)) with 62 fraction bits: each is the root of the one before.
constexpr std::array<uint64_t, kFractionBits> MakeRoots() {
  std::array<uint64_t, kFractionBits> roots{};
  uint64_t power = uint64_t{1} << 63;  // 2.0
  for (uint64_t& root : roots) {
    root = power = SquareRoot(static_cast<Uint128>(power) << 62);
  }
  return roots;
}

constexpr std::array<uint64_t, kFractionBits> kRoots = MakeRoots();

}  // namespace

int64_t Log2(uint64_t x) {
  const int top = 63 - std::countl_zero(x);
  // One fraction bit a round: squaring doubles the logarithm.
  uint64_t mantissa = x << (63 - top);  // in [1, 2) with 63 fraction bits
  int64_t fraction = 0;
  for (int i = 0; i < kFractionBits; ++i) {
    const Uint128 square = static_cast<Uint128>(mantissa) * mantissa;  // 126 fraction bits
    const bool above_two = (square >> 127) != 0;
    mantissa = static_cast<uint64_t>(square >> (above_two ? 64 : 63));
    fraction = 2 * fraction + (above_two ? 1 : 0);
  }
  return (static_cast<int64_t>(top) - kFractionBits) * static_cast<int64_t>(kOne) + fraction;
}

uint64_t Exp2(int64_t x) {
  const int64_t whole = x >> kFractionBits;  // rounds down, also below zero
  if (whole >= 31) return INT64_MAX;
  if (whole < -kFractionBits) return 0;
  const auto fraction = static_cast<uint64_t>(x) & (kOne - 1);
  uint64_t power = uint64_t{1} << 62;  // 1.0
  for (int i = 0; i < kFractionBits; ++i) {
    if ((fraction >> (kFractionBits - 1 - i)) & 1) {
      power = static_cast<uint64_t>(static_cast<Uint128>(power) * kRoots[i] >> 62);
    }
  }
  // From 62 fraction bits to 32, times 2^whole.
  const int64_t shift = 62 - kFractionBits - whole;
  return shift >= 0 ? power >> shift : power << -shift;
}

}  // namespace pagemill::sim
