#include "cc/net/secret.h"

#include <array>
#include <cstdio>
#include <string>

#include "gtest/gtest.h"

namespace pagemill::net {
namespace {

std::string Hex(const Digest256& digest) {
  std::string hex;
  for (const uint8_t byte : digest) {
    char text[3];
    std::snprintf(text, sizeof(text), "%02x", byte);
    hex += text;
  }
  return hex;
}

// RFC 4231, test cases 1, 2 and 6.
TEST(Secret, MacsAreThoseOfTheRfc) {
  EXPECT_EQ(Hex(Secret(std::string(20, '\x0b')).Mac({AsBytes("Hi There")})),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(Hex(Secret("Jefe").Mac({AsBytes("what do ya want "), AsBytes("for nothing?")})),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(Hex(Secret(std::string(131, '\xaa'))
                    .Mac({AsBytes("Test Using Larger Than Block-Size Key - Hash Key First")})),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(Secret, MacsAreComparedWhole) {
  const Digest256 mac = Secret("a").Mac({});
  for (size_t i = 0; i < mac.size(); ++i) {
    Digest256 other = mac;
    other[i] ^= 0x80;
    EXPECT_FALSE(IsSame(mac, other));
  }
  EXPECT_TRUE(IsSame(mac, Secret("a").Mac({})));
}

TEST(Secret, RandomBytesDiffer) {
  std::array<std::byte, 32> a = {}, b = {};
  EXPECT_EQ(FillRandom(a), OkStatus());
  EXPECT_EQ(FillRandom(b), OkStatus());
  EXPECT_NE(a, b);
}

}  // namespace
}  // namespace pagemill::net
