#include "cc/kv_cache/kinds/kinds.h"

#include <string>
#include <string_view>

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

Status Refusal(const KvGroupOptions& group, const char* field, int32_t value, std::string range) {
  return InvalidArgument("KV cache group \"" + group.kind + "\": " + field + " is " +
                         std::to_string(value) + ", it must be " + std::move(range));
}

}  // namespace

StatusOr<std::unique_ptr<CacheKind>> MakeCacheKind(const KvGroupOptions& group, int32_t grain) {
  std::string known;
  for (const Row& row : kKinds) {
    known += (known.empty() ? "" : ", ") + std::string(row.name);
    if (row.name != group.kind) continue;
    if (group.block_size != 0 && group.block_size != grain) {
      return Refusal(group, "block_size", group.block_size, std::to_string(grain));
    }
    if (group.pages_per_block != 1) {
      return Refusal(group, "pages_per_block", group.pages_per_block, "1");
    }
    if (group.window_tokens != 0) {
      return Refusal(group, "window_tokens", group.window_tokens, "0 with this kind");
    }
    return row.make(grain);
  }
  return InvalidArgument("KV cache kind \"" + group.kind + "\" is not one of " + known);
}

}  // namespace pagemill::kv_cache
