#include <gtest/gtest.h>
#include <bit>
#include <cstdlib>
#include <thread>
#include "gmock/gmock.h"
TEST(Smoke, A) { std::thread t([]{}); t.join(); printf("big=%d X=%s\n", std::endian::native == std::endian::big, getenv("X")); EXPECT_THAT(2, ::testing::Eq(2));
#ifdef NDEBUG
FAIL();
#endif
}
