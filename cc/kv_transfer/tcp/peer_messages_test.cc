#include "cc/kv_transfer/tcp/peer_messages.h"

#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace pagemill::kv_transfer {
namespace {

TEST(PeerMessages, AreWhatWasEncoded) {
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
    EXPECT_EQ(DecodeFetch(bytes).has_value(), size == 16) << "no such group";
    EXPECT_EQ(DecodeCancel(bytes).has_value(), size == 8);
    EXPECT_EQ(DecodeBlock(bytes).has_value(), size >= 8 + kRecordHeaderBytes);
    EXPECT_FALSE(DecodeEnd(bytes)) << "no such code";
  }
}

TEST(PeerMessages, FitTheirBounds) {
  EXPECT_EQ(Encode(Fetch{.keys = std::vector<kv_cache::ContentKey>(kMaxFetchBlocks)}).size(),
            kMaxRequestBytes);
}

}  // namespace
}  // namespace pagemill::kv_transfer
