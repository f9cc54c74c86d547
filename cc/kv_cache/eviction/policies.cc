#include "cc/kv_cache/eviction/policies.h"

#include <string>

#include "cc/kv_cache/eviction/adaptive.h"
#include "cc/kv_cache/eviction/lru.h"
#include "cc/kv_cache/eviction/segmented_lru.h"

namespace pagemill::kv_cache {
namespace {

struct Row {
  std::string_view name;
  std::unique_ptr<EvictionPolicy> (*make)(std::vector<Block>* blocks);
};

template <typename Policy>
std::unique_ptr<EvictionPolicy> Make(std::vector<Block>* blocks) {
  return std::make_unique<Policy>(blocks);
}

std::unique_ptr<EvictionPolicy> MakeReuse(std::vector<Block>* blocks) {
  const auto max_protected = static_cast<int32_t>((blocks->size() - 1) * 3 / 4);
  return std::make_unique<SegmentedLru>(blocks, max_protected);
}

constexpr Row kPolicies[] = {
    {"adaptive", Make<AdaptiveEviction>},
    {"lru", Make<LruEviction>},
    {"reuse", MakeReuse},
};

}  // namespace

StatusOr<std::unique_ptr<EvictionPolicy>> MakeEvictionPolicy(std::string_view name,
                                                             std::vector<Block>* blocks) {
  std::string known;
  for (const Row& row : kPolicies) {
    if (row.name == name) return row.make(blocks);
    known += (known.empty() ? "" : ", ") + std::string(row.name);
  }
  return InvalidArgument("eviction is \"" + std::string(name) + "\", it must be one of " + known);
}

}  // namespace pagemill::kv_cache
