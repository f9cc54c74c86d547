#include "cc/kv_cache/block_hash.h"

#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace pagemill::kv_cache {
namespace {

constexpr HashAlgorithm kAlgorithms[] = {HashAlgorithm::kXxh3_128, HashAlgorithm::kSha256};

BlockHash HashAll(HashAlgorithm algorithm, const std::vector<int32_t>& tokens,
                  std::string_view extra_keys = "", const BlockHash& parent = {}) {
  BlockHasher hasher(algorithm);
  return hasher.Hash(parent, extra_keys, step::TokenSequence(tokens, {}), 0,
                     static_cast<int32_t>(tokens.size()));
}

TEST(BlockHash, IsTheSameOnEveryMachine) {
  // The digest of 32 zero bytes, the 4 bytes 01 00 00 00, "k", and the tokens 1 and -2 as 4 bytes
  // each, little endian; made with the Python packages xxhash and hashlib.
  EXPECT_EQ(HashAll(HashAlgorithm::kXxh3_128, {1, -2}, "k").words,
            (std::array<uint64_t, 4>{0x55c740ff250943bcu, 0xcb302224c104b273u, 0, 0}));
  EXPECT_EQ(HashAll(HashAlgorithm::kSha256, {1, -2}, "k").words,
            (std::array<uint64_t, 4>{0x8d69bffb10f26a85u, 0xbb8e12a6554f9c50u, 0x77f468ab8d961fdeu,
                                     0xfb38009e4750be7au}));
}

TEST(BlockHash, AChainIsTheSameOnEveryMachine) {
  // The block after the one above, of the tokens 3 and 4, without extra keys: 32 bytes of the
  // parent, 00 00 00 00, the tokens.
  const auto second = [](HashAlgorithm algorithm) {
    return HashAll(algorithm, {3, 4}, "", HashAll(algorithm, {1, -2}, "k")).words;
  };
  EXPECT_EQ(second(HashAlgorithm::kXxh3_128),
            (std::array<uint64_t, 4>{0xed437a18f6fcdce0u, 0xb23d9d3dfdeb28f2u, 0, 0}));
  EXPECT_EQ(second(HashAlgorithm::kSha256),
            (std::array<uint64_t, 4>{0xc50a8060b8eeebecu, 0x7a53803027379f61u, 0x7361e6f5fc70231cu,
                                     0x4fbacb081b566793u}));
}

TEST(BlockHash, EverythingThatMattersChangesIt) {
  for (HashAlgorithm algorithm : kAlgorithms) {
    const std::vector<int32_t> tokens = {1, 2, 3, 4};
    const BlockHash base = HashAll(algorithm, tokens);
    EXPECT_FALSE(base.empty());
    EXPECT_EQ(HashAll(algorithm, tokens), base);
    std::vector<BlockHash> others = {
        HashAll(algorithm, {1, 2, 3, 5}),   HashAll(algorithm, {1, 2, 3}),
        HashAll(algorithm, {2, 1, 3, 4}),   HashAll(algorithm, tokens, "salt"),
        HashAll(algorithm, tokens, "tlas"), HashAll(algorithm, tokens, "", base)};
    others.push_back(base);
    for (size_t i = 0; i < others.size(); ++i) {
      for (size_t j = 0; j < i; ++j) EXPECT_NE(others[i], others[j]) << i << " " << j;
    }
  }
}

TEST(BlockHash, PromptAndOutputAreOneSequence) {
  BlockHasher hasher(HashAlgorithm::kXxh3_128);
  const std::vector<int32_t> all = {9, 8, 7, 6, 5, 4}, prompt = {9, 8, 7}, output = {6, 5, 4};
  const step::TokenSequence whole(all, {}), split(prompt, output);
  EXPECT_EQ(hasher.Hash({}, "", whole, 2, 6), hasher.Hash({}, "", split, 2, 6));
}

TEST(ExtraKeys, SaltAndAdapterEnterAtTheFirstBlock) {
  step::Request request;
  EXPECT_EQ(ExtraKeys(request, 0, 4), "");
  request.cache_salt = "ab";
  request.adapter = step::AdapterId(0x0102);
  EXPECT_EQ(ExtraKeys(request, 0, 4), std::string("salt\2\0\0\0ab"
                                                  "adpt\10\0\0\0\2\1\0\0\0\0\0\0",
                                                  26));
  EXPECT_EQ(ExtraKeys(request, 4, 8), "");
}

TEST(ExtraKeys, DifferentKeysDoNotLookAlike) {
  step::Request a, b;
  a.cache_salt = "x";
  a.adapter = step::AdapterId(7);
  b.cache_salt = ExtraKeys(a, 0, 4).substr(8);  // the adapter's record as part of the salt
  EXPECT_NE(ExtraKeys(a, 0, 4), ExtraKeys(b, 0, 4));
}

TEST(ExtraKeys, MediaEnterEveryBlockThatTheyTouch) {
  step::Request request;
  request.media = {{"cat", 3, 2}, {"dog", 5, 6}, {"fox", 16, 1}};
  EXPECT_EQ(ExtraKeys(request, 0, 4), std::string("mdia\7\0\0\0\3\0\0\0cat", 15));
  EXPECT_EQ(ExtraKeys(request, 4, 8), std::string("mdia\7\0\0\0\xff\xff\xff\xff"
                                                  "cat"
                                                  "mdia\7\0\0\0\1\0\0\0"
                                                  "dog",
                                                  30));
  EXPECT_EQ(ExtraKeys(request, 8, 12), std::string("mdia\7\0\0\0\xfd\xff\xff\xff"
                                                   "dog",
                                                   15));
  EXPECT_EQ(ExtraKeys(request, 12, 16), "");
  EXPECT_NE(ExtraKeys(request, 16, 20), "");
}

TEST(HashAlgorithm, IsParsed) {
  EXPECT_EQ(*ParseHashAlgorithm("xxh3-128"), HashAlgorithm::kXxh3_128);
  EXPECT_EQ(*ParseHashAlgorithm("sha256"), HashAlgorithm::kSha256);
  EXPECT_EQ(ParseHashAlgorithm("sha1").status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace pagemill::kv_cache
