#include "cc/kv_cache/tiers/replacement.h"

#include <string>

#include "cc/kv_cache/tiers/arc.h"
#include "cc/kv_cache/tiers/lru.h"

namespace pagemill::kv_cache {
namespace {

struct Row {
  std::string_view name;
  std::unique_ptr<Replacement> (*make)(int64_t capacity);
};

template <typename Policy>
std::unique_ptr<Replacement> Make(int64_t capacity) {
  return std::make_unique<Policy>(capacity);
}

constexpr Row kPolicies[] = {
    {"arc", Make<ArcReplacement>},
    {"lru", Make<LruReplacement>},
};

}  // namespace

StatusOr<std::unique_ptr<Replacement>> MakeReplacement(std::string_view name, int64_t capacity) {
  if (capacity < 1) {
    return InvalidArgument("a KV tier of " + std::to_string(capacity) +
                           " blocks holds nothing; it needs at least 1");
  }
  std::string known;
  for (const Row& row : kPolicies) {
    if (row.name == name) return row.make(capacity);
    known += (known.empty() ? "" : ", ") + std::string(row.name);
  }
  return InvalidArgument("KV tier policy \"" + std::string(name) + "\" is not one of " + known);
}

}  // namespace pagemill::kv_cache
