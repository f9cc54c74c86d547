#include "cc/net/net_address.h"

#include <string>

#include "gtest/gtest.h"

namespace pagemill::net {
namespace {

TEST(NetAddress, AddressesHaveOneSpelling) {
  EXPECT_EQ(NetAddress::Parse("10.0.0.7:7000")->ToString(), "10.0.0.7:7000");
  EXPECT_EQ(NetAddress::Parse("[FD00:0:0::7]:80")->ToString(), "[fd00::7]:80");
  EXPECT_EQ(*NetAddress::Make("fd00::0:7", "80"), *NetAddress::Parse("[fd00::7]:80"));
  EXPECT_NE(*NetAddress::Make("10.0.0.7", "80"), *NetAddress::Make("10.0.0.7", "81"));
  EXPECT_TRUE(NetAddress::Parse("0.0.0.0:1")->is_wildcard());
  EXPECT_TRUE(NetAddress::Parse("[0::0]:1")->is_wildcard());
}

TEST(NetAddress, OtherTextsAreRefused) {
  for (const std::string text :
       {"", ":", "10.0.0.7", "10.0.0.7:", ":80", "10.0.0.7:65536", "10.0.0.7:-1", "10.0.0.7:+80",
        "10.0.0.7: 80", "host:80", "10.0.7:80", "fd00::7:80", "[10.0.0.7:80", "[]:80",
        "[fd00::7%eth0]:80", "0x0a.0.0.7:80"}) {
    StatusOr<NetAddress> parsed = NetAddress::Parse(text);
    EXPECT_EQ(parsed.status().code(), StatusCode::kInvalidArgument) << text;
    EXPECT_NE(parsed.status().message().find("\"" + text + "\""), std::string::npos);
  }
  EXPECT_FALSE(NetAddress::Make(std::string(1 << 20, ':'), "80").ok());
  EXPECT_FALSE(NetAddress::Make(std::string("10.0.0.7\0", 9), "80").ok());
}

TEST(NetAddress, LoopbackIsKnown) {
  for (const std::string text : {"127.0.0.1:1", "127.9.0.1:1", "[::1]:1"}) {
    EXPECT_TRUE(NetAddress::Parse(text)->is_loopback()) << text;
  }
  for (const std::string text : {"10.0.0.7:1", "0.0.0.0:1", "[::]:1", "[fd00::7]:1"}) {
    EXPECT_FALSE(NetAddress::Parse(text)->is_loopback()) << text;
  }
}

TEST(NetAddress, SocketsHaveTheSameAddress) {
  for (const std::string text : {"10.0.0.7:7000", "[fd00::7]:80"}) {
    StatusOr<NetAddress> address = NetAddress::Parse(text);
    sockaddr_storage socket;
    EXPECT_GT(address->ToSocket(&socket), 0u);
    EXPECT_EQ(NetAddress::FromSocket(socket)->ToString(), text);
  }
}

}  // namespace
}  // namespace pagemill::net
