// File: cc/kv_cache/testing/made_query.h
// A PrefixQuery without a cache, for tests of connectors.
//
//   const MadeQuery made(hashes, {{.kind = "full"}, {.kind = "sliding_window", .window_tokens =
//   5}}); connector->Lookup(request, made.query(), &transfers);
#ifndef PAGEMILL_CC_KV_CACHE_TESTING_MADE_QUERY_H_
#define PAGEMILL_CC_KV_CACHE_TESTING_MADE_QUERY_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "cc/base/status.h"
#include "cc/kv_cache/kinds/kinds.h"
#include "cc/kv_cache/prefix_query.h"
#include "cc/step/kv_group_options.h"

namespace pagemill::kv_cache {

class MadeQuery {
 public:
  static constexpr int32_t kBlockSize = 4;  // tokens

  // Asks for the blocks behind the first `num_there`. Groups are numbered in their order.
  explicit MadeQuery(std::vector<BlockHash> hashes,
                     const std::vector<step::KvGroupOptions>& groups = {{.kind = "full"}},
                     int32_t num_there = 0)
      : hashes_(std::move(hashes)), num_there_(num_there) {
    for (const step::KvGroupOptions& group : groups) {
      StatusOr<std::unique_ptr<CacheKind>> kind = MakeCacheKind(group, kBlockSize);
      PAGEMILL_CHECK(kind.ok());
      kinds_.push_back(*std::move(kind));
      const int32_t tokens = std::max(group.block_size, kBlockSize);
      groups_.push_back({GroupId(static_cast<uint16_t>(groups_.size())), kinds_.back().get(),
                         tokens / kBlockSize, kinds_.back()->traits()});
    }
    std::stable_partition(groups_.begin(), groups_.end(), [](const PrefixQuery::Group& group) {
      return group.traits.prefixes_nest;
    });
  }

  PrefixQuery query() const {
    return {groups_, {.hashes = hashes_, .num_there = num_there_, .block_size = kBlockSize}};
  }

 private:
  std::vector<BlockHash> hashes_;
  int32_t num_there_;
  std::vector<std::unique_ptr<CacheKind>> kinds_;
  std::vector<PrefixQuery::Group> groups_;
};

}  // namespace pagemill::kv_cache

#endif  // PAGEMILL_CC_KV_CACHE_TESTING_MADE_QUERY_H_
