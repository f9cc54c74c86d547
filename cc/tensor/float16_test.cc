#include "cc/tensor/float16.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace pagemill {
namespace {

uint32_t Bits(float value) { return std::bit_cast<uint32_t>(value); }

// The definition of binary16, in double.
double F16Value(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

bool IsF16Nan(uint16_t bits) { return (bits & 0x7c00) == 0x7c00 && (bits & 0x3ff) != 0; }

TEST(F16, EveryValueWidensExactlyAndNarrowsBack) {
  for (uint32_t i = 0; i < 0x10000; ++i) {
    const uint16_t bits = static_cast<uint16_t>(i);
    const float value = F16ToFloat(bits);
    EXPECT_EQ(std::signbit(value), (bits & 0x8000) != 0) << std::hex << i;
    if (IsF16Nan(bits)) {
      ASSERT_TRUE(std::isnan(value)) << std::hex << i;
      ASSERT_TRUE(IsF16Nan(FloatToF16(value))) << std::hex << i;
      continue;
    }
    if ((bits & 0x7c00) == 0x7c00) {
      ASSERT_TRUE(std::isinf(value)) << std::hex << i;
    } else {
      ASSERT_EQ(static_cast<double>(value), F16Value(bits)) << std::hex << i;
    }
    ASSERT_EQ(FloatToF16(value), bits) << std::hex << i;
  }
}

TEST(F16, NarrowingRoundsToNearestEven) {
  // Between each pair of neighbours: just below the middle, the middle, just above.
  for (uint16_t low = 0; low < 0x7bff; ++low) {
    const uint16_t high = static_cast<uint16_t>(low + 1);
    const float middle = static_cast<float>((F16Value(low) + F16Value(high)) / 2);  // exact
    const uint16_t even = (low & 1) == 0 ? low : high;
    ASSERT_EQ(FloatToF16(middle), even) << std::hex << low;
    ASSERT_EQ(FloatToF16(-middle), even | 0x8000) << std::hex << low;
    ASSERT_EQ(FloatToF16(std::nextafter(middle, 0.0f)), low) << std::hex << low;
    ASSERT_EQ(FloatToF16(std::nextafter(middle, 1e9f)), high) << std::hex << low;
  }
}

TEST(F16, OverflowsAndUnderflows) {
  EXPECT_EQ(FloatToF16(65504.0f), 0x7bff);
  EXPECT_EQ(FloatToF16(std::nextafter(65520.0f, 0.0f)), 0x7bff);
  EXPECT_EQ(FloatToF16(65520.0f), 0x7c00);
  EXPECT_EQ(FloatToF16(-1e30f), 0xfc00);
  EXPECT_EQ(FloatToF16(0x1p-25f), 0x0000);  // a tie with zero
  EXPECT_EQ(FloatToF16(-0x1.8p-25f), 0x8001);
  EXPECT_EQ(FloatToF16(std::numeric_limits<float>::denorm_min()), 0x0000);
}

TEST(Bf16, WideningKeepsTheBits) {
  for (uint32_t i = 0; i < 0x10000; ++i) {
    const uint16_t bits = static_cast<uint16_t>(i);
    ASSERT_EQ(Bits(Bf16ToFloat(bits)), i << 16);
    if (!std::isnan(Bf16ToFloat(bits))) {
      ASSERT_EQ(FloatToBf16(Bf16ToFloat(bits)), bits) << std::hex << i;
    }
  }
}

TEST(Bf16, NarrowingRoundsToNearestEven) {
  EXPECT_EQ(FloatToBf16(1.0f), 0x3f80);
  EXPECT_EQ(FloatToBf16(std::bit_cast<float>(0x3f808000u)), 0x3f80);  // tie, even below
  EXPECT_EQ(FloatToBf16(std::bit_cast<float>(0x3f818000u)), 0x3f82);  // tie, even above
  EXPECT_EQ(FloatToBf16(std::bit_cast<float>(0x3f808001u)), 0x3f81);
  EXPECT_EQ(FloatToBf16(std::bit_cast<float>(0xbf807fffu)), 0xbf80);
  EXPECT_EQ(FloatToBf16(std::numeric_limits<float>::max()), 0x7f80);  // rounds to infinity
  EXPECT_EQ(FloatToBf16(-0.0f), 0x8000);
}

TEST(Bf16, NanStaysNan) {
  // The payload's upper bits are zero: truncation alone would turn it into infinity.
  const float nan = std::bit_cast<float>(0x7f800001u);
  EXPECT_TRUE(std::isnan(Bf16ToFloat(FloatToBf16(nan))));
  EXPECT_EQ(FloatToBf16(std::bit_cast<float>(0xffffffffu)), 0xffff);
}

}  // namespace
}  // namespace pagemill
