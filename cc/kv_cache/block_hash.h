// File: cc/kv_cache/block_hash.h
// The identity of a full block of tokens: a hash chain over (parent block's hash, extra keys,
// tokens). Equal hashes mean equal tokens from the start of the request to the end of the block,
// under equal extra keys (salt, adapter, media ids). The same on every machine.
//
//   BlockHasher hasher(HashAlgorithm::kXxh3_128);
//   BlockHash first = hasher.Hash(BlockHash{}, ExtraKeys(request, 0, 16), tokens, 0, 16);
//   BlockHash second = hasher.Hash(first, ExtraKeys(request, 16, 32), tokens, 16, 32);
//
// What is hashed: 32 bytes of the parent (its words, zero at the root), the size of the extra keys,
// the extra keys, the tokens; all integers are 4 bytes, little endian.
//
// Thread safety: a BlockHasher has a scratch buffer; one per thread.
#ifndef PAGEMILL_CC_KV_CACHE_BLOCK_HASH_H_
#define PAGEMILL_CC_KV_CACHE_BLOCK_HASH_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cc/base/status.h"
#include "cc/step/request.h"
#include "cc/step/token_sequence.h"

namespace pagemill::kv_cache {

// 256 bits; xxh3-128 fills the first two words. All zero means "no hash": the root of a chain, or a
// block whose content no request may reuse.
struct BlockHash {
  std::array<uint64_t, 4> words{};

  bool empty() const { return (words[0] | words[1] | words[2] | words[3]) == 0; }
  friend bool operator==(const BlockHash&, const BlockHash&) = default;
};

enum class HashAlgorithm {
  kXxh3_128,  // fast; a tenant who tries can construct collisions
  kSha256,    // no tenant can; some 10 times slower
};

// "xxh3-128" or "sha256"; kInvalidArgument lists them.
StatusOr<HashAlgorithm> ParseHashAlgorithm(std::string_view name);

// What distinguishes equal tokens of `request` in the block of the tokens [begin, end). A list of
// records, each a tag of 4 letters, the size of the rest (4 bytes, little endian), and the rest:
//   salt  the salt                                          at begin = 0, if it is not empty
//   adpt  the adapter's id (8 bytes)                        at begin = 0, if there is one
//   mdia  where the item starts, counted from `begin`,      for each media item with tokens in the
//         negative for one that started before (4 bytes),   block, by position
//         and its content id
// Salt and adapter reach the later blocks through the chain. Empty for most blocks.
std::string ExtraKeys(const step::Request& request, int32_t begin, int32_t end);

class BlockHasher {
 public:
  explicit BlockHasher(HashAlgorithm algorithm) : algorithm_(algorithm) {}

  // Hash of the block that holds the tokens [begin, end).
  BlockHash Hash(const BlockHash& parent, std::string_view extra_keys,
                 const step::TokenSequence& tokens, int32_t begin, int32_t end);

 private:
  HashAlgorithm algorithm_;
  std::vector<uint8_t> buffer_;
};

}  // namespace pagemill::kv_cache

#endif  // PAGEMILL_CC_KV_CACHE_BLOCK_HASH_H_
