#include "cc/comm/tcp/join_messages.h"

#include <random>
#include <string>

#include "gtest/gtest.h"

namespace pagemill::comm {
namespace {

TEST(JoinMessages, AreWhatWasEncoded) {
  const Claim claim = {.version = "1.2.3",
                       .model = {1, 2},
                       .options = {3},
                       .rank = 5,
                       .number = int64_t{1} << 40,
                       .port = 65535};
  const net::Payload payload = Encode(claim);
  EXPECT_EQ(payload.size(), kJoinProtocol.claim_bytes);
  const std::optional<Claim> same = DecodeClaim(payload);
  ASSERT_TRUE(same);
  EXPECT_EQ(same->version, "1.2.3");
  EXPECT_EQ(same->model, claim.model);
  EXPECT_EQ(same->options, claim.options);
  EXPECT_EQ(same->rank, 5);
  EXPECT_EQ(same->number, claim.number);
  EXPECT_EQ(same->port, 65535);

  const Start start = {.number = 9, .places = {{"10.0.0.7", 0}, {"fd00::7", 7000}}};
  EXPECT_EQ(Encode(start).size(), kStartBytes);
  const std::optional<Start> places = DecodeStart(Encode(start), 2);
  ASSERT_TRUE(places);
  EXPECT_EQ(places->number, 9);
  EXPECT_EQ(places->places[0].host, "10.0.0.7");
  EXPECT_EQ(places->places[1].host, "fd00::7");
  EXPECT_EQ(places->places[1].port, 7000);
}

TEST(JoinMessages, ReasonsAreCutAndPrintable) {
  EXPECT_EQ(DecodeReason(EncodeReason("")), "");
  EXPECT_EQ(DecodeReason(EncodeReason("another model")), "another model");
  EXPECT_EQ(DecodeReason(EncodeReason(std::string(1000, 'a'))), std::string(kReasonBytes, 'a'));
  EXPECT_EQ(DecodeReason(EncodeReason("a line\nand another")), "a line");
  EXPECT_EQ(DecodeReason(net::Payload(3)), "");
}

TEST(JoinMessages, OtherBytesAreNone) {
  EXPECT_FALSE(DecodeClaim(net::Payload(kJoinProtocol.claim_bytes - 1)));
  EXPECT_FALSE(DecodeStart(net::Payload(kStartBytes + 1), 2));
  std::mt19937 random(3);
  for (int i = 0; i < 1000; ++i) {  // any bytes, of which few are messages
    net::Payload payload(i % 2 == 0 ? kJoinProtocol.claim_bytes : kStartBytes);
    for (std::byte& byte : payload) byte = static_cast<std::byte>(random());
    const std::optional<Claim> claim = DecodeClaim(payload);
    if (claim) {
      EXPECT_LT(claim->rank, kMaxRanks);
    }
    const std::optional<Start> start = DecodeStart(payload, kMaxRanks);
    if (start) {
      EXPECT_EQ(start->places.size(), static_cast<size_t>(kMaxRanks));
    }
  }
}

}  // namespace
}  // namespace pagemill::comm
