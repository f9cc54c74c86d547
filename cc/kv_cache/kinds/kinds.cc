#include "cc/kv_cache/kinds/kinds.h"

#include <string>
#include <string_view>
#include <utility>

#include "cc/kv_cache/kinds/encoder.h"
#include "cc/kv_cache/kinds/full.h"
#include "cc/kv_cache/kinds/state_space.h"
#include "cc/kv_cache/kinds/windowed.h"

namespace pagemill::kv_cache {
namespace {

using KindPtr = std::unique_ptr<CacheKind>;

// More than the drafts of any step.
constexpr int32_t kMaxRecentStates = 1024;

struct Row {
  std::string_view name;
  bool has_window;
  KindPtr (*make)(const KvGroupOptions& group, int32_t block_size);
};

template <typename Kind>
KindPtr Make(const KvGroupOptions&, int32_t block_size) {
  return std::make_unique<Kind>(block_size);
}

template <typename Kind>
KindPtr MakeWindowed(const KvGroupOptions& group, int32_t block_size) {
  return std::make_unique<Kind>(block_size, group.window_tokens);
}

KindPtr MakeEncoderOnly(const KvGroupOptions&, int32_t) {
  return std::make_unique<EncoderOnlyAttention>();
}

KindPtr MakeStateSpace(const KvGroupOptions& group, int32_t block_size) {
  return std::make_unique<StateSpace>(block_size, group.checkpoints, group.recent_states);
}

constexpr Row kKinds[] = {
    {"chunked_local", true, MakeWindowed<ChunkedLocalAttention>},
    {"cross", false, Make<CrossAttention>},
    {"encoder_only", false, MakeEncoderOnly},
    {"full", false, Make<FullAttention>},
    {"mla", false, Make<FullAttention>},
    {"sliding_window", true, MakeWindowed<SlidingWindowAttention>},
    {"state_space", false, MakeStateSpace},
};

Status Refusal(const KvGroupOptions& group, const char* field, int32_t value, std::string range) {
  return InvalidArgument("KV cache group \"" + group.kind + "\": " + field + " is " +
                         std::to_string(value) + ", it must be " + std::move(range));
}

Status CheckShape(const KvGroupOptions& group, bool has_window, int32_t grain) {
  if (group.block_size < 0 || group.block_size % grain != 0) {
    return Refusal(group, "block_size", group.block_size,
                   "a multiple of the cache's block_size, " + std::to_string(grain));
  }
  if (group.pages_per_block < 1) {
    return Refusal(group, "pages_per_block", group.pages_per_block, "at least 1");
  }
  if (has_window && group.window_tokens < 1) {
    return Refusal(group, "window_tokens", group.window_tokens, "at least 1 token");
  }
  if (!has_window && group.window_tokens != 0) {
    return Refusal(group, "window_tokens", group.window_tokens, "0 with this kind");
  }
  const bool has_states = group.kind == "state_space";
  if (group.recent_states < 0 || group.recent_states > kMaxRecentStates) {
    return Refusal(group, "recent_states", group.recent_states,
                   "from 0 to " + std::to_string(kMaxRecentStates));
  }
  if (!has_states && group.recent_states != 0) {
    return Refusal(group, "recent_states", group.recent_states, "0 with this kind");
  }
  return OkStatus();
}

}  // namespace

StatusOr<KindPtr> MakeCacheKind(const KvGroupOptions& group, int32_t grain) {
  std::string known;
  for (const Row& row : kKinds) {
    known += (known.empty() ? "" : ", ") + std::string(row.name);
    if (row.name != group.kind) continue;
    PAGEMILL_RETURN_IF_ERROR(CheckShape(group, row.has_window, grain));
    return row.make(group, group.block_size == 0 ? grain : group.block_size);
  }
  return InvalidArgument("KV cache kind \"" + group.kind + "\" is not one of " + known);
}

}  // namespace pagemill::kv_cache
