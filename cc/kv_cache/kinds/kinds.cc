#include "cc/kv_cache/kinds/kinds.h"

#include <string>

#include "cc/kv_cache/kinds/full.h"

namespace pagemill::kv_cache {
namespace {

struct Row {
  std::string_view name;
  std::unique_ptr<CacheKind> (*make)(int32_t block_size);
};

template <typename Kind>
std::unique_ptr<CacheKind> Make(int32_t block_size) {
  return std::make_unique<Kind>(block_size);
}

constexpr Row kKinds[] = {
    {"full", Make<FullAttention>},
};

}  // namespace

StatusOr<std::unique_ptr<CacheKind>> MakeCacheKind(std::string_view name, int32_t block_size) {
  std::string known;
  for (const Row& row : kKinds) {
    if (row.name == name) return row.make(block_size);
    known += (known.empty() ? "" : ", ") + std::string(row.name);
  }
  return InvalidArgument("KV cache kind \"" + std::string(name) + "\" is not one of " + known);
}

}  // namespace pagemill::kv_cache
