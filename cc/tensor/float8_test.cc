#include "cc/tensor/float8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace pagemill {
namespace {

// The value from the format's definition.
double ValueOf(int bits) {
  const int exponent = bits >> 3 & 15;
  const int mantissa = bits & 7;
  if (exponent == 15 && mantissa == 7) return std::nan("");
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return (bits & 0x80) != 0 ? -magnitude : magnitude;
}

TEST(F8E4M3, EveryValueIsThatOfTheFormatAndConvertsBack) {
  for (int bits = 0; bits < 256; ++bits) {
    const float value = F8E4M3ToFloat(static_cast<uint8_t>(bits));
    const double expected = ValueOf(bits);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(value)) << bits;
    } else {
      EXPECT_EQ(value, expected) << bits;
      EXPECT_EQ(std::signbit(value), bits >= 0x80) << bits;
    }
    EXPECT_EQ(FloatToF8E4M3(value), bits);
  }
}

TEST(F8E4M3, RoundsToTheNearestAndTiesToEven) {
  for (int bits = 0; bits < 0x7e; ++bits) {
    const double low = ValueOf(bits), high = ValueOf(bits + 1);
    const float middle = static_cast<float>((low + high) / 2);
    const int even = bits % 2 == 0 ? bits : bits + 1;
    EXPECT_EQ(FloatToF8E4M3(middle), even) << bits;
    EXPECT_EQ(FloatToF8E4M3(-middle), even | 0x80) << bits;
    EXPECT_EQ(FloatToF8E4M3(std::nextafterf(middle, 0.0f)), bits) << bits;
    EXPECT_EQ(FloatToF8E4M3(std::nextafterf(middle, 1000.0f)), bits + 1) << bits;
  }
}

TEST(F8E4M3, SaturatesAndKeepsNaN) {
  EXPECT_EQ(FloatToF8E4M3(449.0f), 0x7e);
  EXPECT_EQ(FloatToF8E4M3(-std::numeric_limits<float>::infinity()), 0xfe);
  EXPECT_EQ(FloatToF8E4M3(std::nanf("")) & 0x7f, 0x7f);
}

}  // namespace
}  // namespace pagemill
