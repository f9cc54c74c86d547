#include "cc/kv_transfer/tcp/peer_messages.h"

#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace pagemill::kv_transfer {
namespace {

TEST(PeerMessages, AreWhatWasEncoded) {
  Greeting greeting;
  greeting.nonce[31] = std::byte{9};
  EXPECT_EQ(DecodeGreeting(Encode(greeting))->nonce, greeting.nonce);
  const Proof proof = {.format = {.fingerprint = {.low = 1, .high = 2}, .page_bytes = 3},
                       .mac = {4, 5}};
  EXPECT_EQ(DecodeProof(Encode(proof))->format.fingerprint, proof.format.fingerprint);
  EXPECT_EQ(DecodeProof(Encode(proof))->format.page_bytes, 3u);
  EXPECT_EQ(DecodeProof(Encode(proof))->mac, proof.mac);
  const Welcome welcome = {.engine_id = std::string(32, 'a'), .mac = {6}};
  EXPECT_EQ(DecodeWelcome(Encode(welcome))->engine_id, welcome.engine_id);
  EXPECT_EQ(DecodeWelcome(Encode(welcome))->mac, welcome.mac);
  EXPECT_EQ(DecodeRefusal(Encode(Refusal::kFormat)), Refusal::kFormat);
  Fetch fetch = {.id = 7, .number = 8, .keys = {{}, {}}};
  fetch.keys[1].hash.words[3] = 9;
  fetch.keys[1].group = kv_cache::GroupId(65535);
  EXPECT_EQ(DecodeFetch(Encode(fetch))->id, 7u);
  EXPECT_EQ(DecodeFetch(Encode(fetch))->number, 8u);
  EXPECT_EQ(DecodeFetch(Encode(fetch))->keys, fetch.keys);
  EXPECT_EQ(DecodeCancel(EncodeCancel(10)), 10u);
  const EndOfFetch end = {.id = 11, .code = StatusCode::kNotFound};
  EXPECT_EQ(DecodeEnd(Encode(end))->id, 11u);
  EXPECT_EQ(DecodeEnd(Encode(end))->code, StatusCode::kNotFound);
}

TEST(PeerMessages, OtherBytesAreNone) {
  std::mt19937 random(3);
  for (size_t size = 0; size < 300; ++size) {
    std::vector<std::byte> bytes(size);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() | 1);
    EXPECT_EQ(DecodeGreeting(bytes).has_value(), size == 40);
    EXPECT_EQ(DecodeProof(bytes).has_value(), size == 56);
    EXPECT_EQ(DecodeWelcome(bytes).has_value(), size == 64);
    EXPECT_FALSE(DecodeRefusal(bytes)) << "no such reason";
    EXPECT_EQ(DecodeFetch(bytes).has_value(), size == 16) << "no such group";
    EXPECT_EQ(DecodeCancel(bytes).has_value(), size == 8);
    EXPECT_EQ(DecodeBlock(bytes).has_value(), size >= 8 + kRecordHeaderBytes);
    EXPECT_FALSE(DecodeEnd(bytes)) << "no such code";
  }
  EXPECT_FALSE(DecodeRefusal(std::vector<std::byte>(8)));
}

TEST(PeerMessages, FitTheirBounds) {
  EXPECT_LE(Encode(Greeting()).size(), kMaxHandshakeBytes);
  EXPECT_LE(Encode(Proof()).size(), kMaxHandshakeBytes);
  EXPECT_LE(Encode(Welcome{.engine_id = std::string(32, 'a'), .mac = {}}).size(),
            kMaxHandshakeBytes);
  EXPECT_EQ(Encode(Fetch{.keys = std::vector<kv_cache::ContentKey>(kMaxFetchBlocks)}).size(),
            kMaxRequestBytes);
}

}  // namespace
}  // namespace pagemill::kv_transfer
