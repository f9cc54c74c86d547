#include "cc/kv_cache/prefix_query.h"

namespace pagemill::kv_cache {

int32_t PrefixQuery::LongestPrefix(const ContentFinder& finder) const {
  return LongestPrefix(finder, static_cast<int32_t>(hashes().size()), /*with_checkpoints=*/true);
}

// Each group cuts what the others left, until none does. A group whose prefixes nest needs to be
// asked once.
int32_t PrefixQuery::LongestPrefix(const ContentFinder& finder, int32_t max_blocks,
                                   bool with_checkpoints) const {
  int32_t length = blocks_.num_there + max_blocks;
  bool first = true;
  for (bool cut = true; cut; first = false) {
    cut = false;
    for (const Group& group : groups_) {
      if (group.traits.checkpoints && !with_checkpoints) continue;
      int32_t n = length / group.stride;
      if (first || !group.traits.prefixes_nest) {
        const GroupContent content(blocks_.hashes, group.stride, group.id, finder,
                                   blocks_.num_there);
        n = group.kind->LongestPrefix(content, n);
      }
      cut = cut || n * group.stride < length;
      length = n * group.stride;
    }
  }
  return length < blocks_.num_there ? 0 : length - blocks_.num_there;
}

std::vector<ContentKey> PrefixQuery::Needed(int32_t num_blocks) const {
  std::vector<ContentKey> needed;
  const int32_t length = blocks_.num_there + num_blocks;
  const TokenRange range{length * blocks_.block_size, length * blocks_.block_size};
  for (int32_t i = blocks_.num_there; i < length; ++i) {
    for (const Group& group : groups_) {
      const bool ends_here = (i + 1) % group.stride == 0;
      if (ends_here && group.kind->Needs(i / group.stride, range, shape_)) {
        needed.push_back({blocks_.hashes[static_cast<size_t>(i)], group.id});
      }
    }
  }
  return needed;
}

}  // namespace pagemill::kv_cache
