#include "cc/sim/fixed_point.h"

#include <cmath>

#include "gtest/gtest.h"

namespace pagemill::sim {
namespace {

double FromQ32(int64_t x) { return static_cast<double>(x) / static_cast<double>(kOne); }

TEST(FixedPoint, SquareRootIsTheFloor) {
  for (uint64_t x : {0u, 1u, 2u, 3u, 4u, 15u, 16u, 17u, 99999u}) {
    const uint64_t root = SquareRoot(x);
    EXPECT_LE(root * root, x);
    EXPECT_GT((root + 1) * (root + 1), x);
  }
  EXPECT_EQ(SquareRoot(~Uint128{0}), ~uint64_t{0});
}

TEST(FixedPoint, MulDivDoesNotOverflow) {
  EXPECT_EQ(MulDiv(uint64_t{1} << 62, 6, 8), int64_t{3} << 60);
  EXPECT_EQ(MulDiv(UINT64_MAX, UINT64_MAX, 1), INT64_MAX);
}

TEST(FixedPoint, Log2IsExactAtPowersAndCloseBetween) {
  for (int k = 0; k < 64; ++k) {
    EXPECT_EQ(Log2(uint64_t{1} << k), (static_cast<int64_t>(k) - 32) * int64_t{1} << 32);
  }
  for (uint64_t x = 1; x < (uint64_t{1} << 62); x = x * 3 + 1) {
    EXPECT_NEAR(FromQ32(Log2(x)), std::log2(FromQ32(static_cast<int64_t>(x))), 1e-9);
  }
}

TEST(FixedPoint, Exp2InvertsLog2) {
  EXPECT_EQ(Exp2(0), kOne);
  EXPECT_EQ(Exp2(-33 * static_cast<int64_t>(kOne)), 0u);
  EXPECT_EQ(Exp2(31 * static_cast<int64_t>(kOne)), static_cast<uint64_t>(INT64_MAX));
  for (uint64_t x = kOne / 1024; x < (kOne << 20); x = x * 3 / 2) {
    const double expected = FromQ32(static_cast<int64_t>(x));
    EXPECT_NEAR(FromQ32(static_cast<int64_t>(Exp2(Log2(x)))), expected, 2e-9 + 2e-9 * expected);
  }
}

// Pinned values: the header guarantees them on every machine.
TEST(FixedPoint, GivesTheSameBitsEverywhere) {
  EXPECT_EQ(Log2(3 * kOne), 6807362105);
  EXPECT_EQ(Exp2(static_cast<int64_t>(kOne) / 2), 6074000999u);
}

}  // namespace
}  // namespace pagemill::sim
