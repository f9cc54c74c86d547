// File: cc/kv_cache/testing/small_caches.h
// Small caches with blocks of 4 tokens, and requests that go through them at once. Tests only.
//
//   KvCacheManager cache(Options(8));
//   RunAndFree(MakeRequest(9), 9, &cache);
//   NumFound(MakeRequest(9), &cache);   // 8
#ifndef PAGEMILL_CC_KV_CACHE_TESTING_SMALL_CACHES_H_
#define PAGEMILL_CC_KV_CACHE_TESTING_SMALL_CACHES_H_

#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "cc/kv_cache/kv_cache_manager.h"
#include "gtest/gtest.h"

namespace pagemill::kv_cache {

inline KvCacheOptions Options(int32_t num_blocks, std::vector<KvGroupOptions> groups = {{"full"}}) {
  KvCacheOptions options;
  options.num_blocks = num_blocks;
  options.block_size = 4;
  options.groups = std::move(groups);
  return options;
}

inline step::Request MakeRequest(int32_t prompt_size, const std::string& salt = "") {
  step::Request request;
  std::vector<int32_t> prompt(static_cast<size_t>(prompt_size));
  std::iota(prompt.begin(), prompt.end(), 100);
  request.prompt_token_ids = std::move(prompt);
  request.cache_salt = salt;
  return request;
}

inline step::TokenSequence Tokens(const step::Request& request) {
  return {request.prompt_token_ids, {}};
}

// Runs `request` as far as `num_tokens`, from what is cached of it, and gives its blocks back.
inline void RunAndFree(const step::Request& request, int32_t num_tokens, KvCacheManager* cache) {
  RequestBlocks blocks;
  std::vector<std::vector<BlockId>> added;
  const PrefixMatch match = cache->FindPrefix(request, Tokens(request), &blocks);
  ASSERT_TRUE(cache->CanAllocate(blocks, &match, num_tokens));
  PAGEMILL_CHECK(cache->Allocate(num_tokens, &match, &blocks, &added).ok());
  cache->Commit(request, Tokens(request), num_tokens, &blocks);
  cache->Free(&blocks);
}

inline int32_t NumFound(const step::Request& request, KvCacheManager* cache) {
  RequestBlocks blocks;
  return cache->FindPrefix(request, Tokens(request), &blocks).num_tokens;
}

}  // namespace pagemill::kv_cache

#endif  // PAGEMILL_CC_KV_CACHE_TESTING_SMALL_CACHES_H_
