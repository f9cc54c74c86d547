#include "cc/kv_cache/eviction/policies.h"

#include <string>

#include "cc/kv_cache/eviction/lru.h"
#include "cc/kv_cache/eviction/reuse.h"

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

constexpr Row kPolicies[] = {
    {"lru", Make<LruEviction>},
    {"reuse", Make<ReuseEviction>},
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
