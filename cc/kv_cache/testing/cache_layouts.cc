#include "cc/kv_cache/testing/cache_layouts.h"

#include <random>
#include <utility>

#include "cc/kv_cache/kv_cache_manager.h"

namespace pagemill::kv_cache {
namespace {

constexpr int32_t kGrain = 4;

KvCacheOptions Options(std::vector<KvGroupOptions> groups, const char* eviction,
                       int32_t num_blocks) {
  KvCacheOptions options;
  options.num_blocks = num_blocks;
  options.block_size = kGrain;
  options.groups = std::move(groups);
  options.eviction = eviction;
  options.max_pinned_blocks = 12;
  options.max_events = 120;
  options.block_age_sample = 0.5;
  options.max_step_tokens = 20;
  options.max_steps_in_flight = 2;
  return options;
}

}  // namespace

std::vector<KvCacheOptions> CacheLayouts() {
  const KvGroupOptions state{.kind = "state_space", .pages_per_block = 2};
  const KvGroupOptions large_state{.kind = "state_space", .block_size = 8};
  const KvGroupOptions every{.kind = "state_space",
                             .checkpoints = StateCheckpoints::kEveryBoundary};
  const KvGroupOptions recent{.kind = "state_space", .recent_states = 4};
  const KvGroupOptions recent_every{.kind = "state_space",
                                    .pages_per_block = 2,
                                    .checkpoints = StateCheckpoints::kEveryBoundary,
                                    .recent_states = 3};
  const KvGroupOptions recent_only{
      .kind = "state_space", .checkpoints = StateCheckpoints::kNone, .recent_states = 2};
  const KvGroupOptions none{.kind = "state_space", .checkpoints = StateCheckpoints::kNone};
  const KvGroupOptions window{.kind = "sliding_window", .window_tokens = 10};
  const KvGroupOptions wide{.kind = "sliding_window", .block_size = 12, .window_tokens = 30};
  const KvGroupOptions chunk{.kind = "chunked_local", .window_tokens = 24};
  const KvGroupOptions mla{.kind = "mla", .block_size = 8, .pages_per_block = 3};
  const std::vector<std::vector<KvGroupOptions>> layouts = {
      {{"full"}},
      {mla},
      {window},
      {chunk},
      {state},
      {{"full"}, window},
      {{"full"}, chunk, wide},
      {{"full"}, state},
      {{"full"}, large_state},
      {mla, every},
      {{"full"}, window, state, {.kind = "full", .block_size = 8}},
      {{"full"}, none},
      {recent},
      {{"full"}, window, recent},
      {{"full"}, recent_every},
      {{"full"}, recent_only},
      {{"full"}, {.kind = "cross"}},
      {{.kind = "encoder_only"}},
  };
  std::vector<KvCacheOptions> made;
  for (const std::vector<KvGroupOptions>& groups : layouts) {
    for (const char* eviction : {"adaptive", "lru", "reuse"}) {
      for (int32_t num_blocks : {40, 90}) made.push_back(Options(groups, eviction, num_blocks));
    }
  }
  return made;
}

KvCacheOptions RandomCacheLayout(uint32_t seed) {
  std::mt19937 random(seed);
  const auto draw = [&random](uint32_t below) {
    return static_cast<int32_t>(static_cast<uint32_t>(random()) % below);
  };
  constexpr const char* kKinds[] = {"full",        "full",  "mla",         "sliding_window",
                                    "state_space", "cross", "state_space", "chunked_local"};
  constexpr StateCheckpoints kCheckpoints[] = {
      StateCheckpoints::kLastBoundary, StateCheckpoints::kLastBoundary,
      StateCheckpoints::kEveryBoundary, StateCheckpoints::kNone};
  std::vector<KvGroupOptions> groups(static_cast<size_t>(1 + draw(4)));
  for (KvGroupOptions& group : groups) {
    group.kind = kKinds[draw(draw(4) == 0 ? 8 : 5)];
    group.block_size = kGrain * draw(4);
    group.pages_per_block = 1 + draw(3);
    const int32_t tokens = group.block_size == 0 ? kGrain : group.block_size;
    if (group.kind == "sliding_window") group.window_tokens = 1 + draw(40);
    if (group.kind == "chunked_local") group.window_tokens = tokens * (1 + draw(4));
    if (group.kind == "state_space") {
      group.checkpoints = kCheckpoints[draw(draw(3) == 0 ? 4 : 3)];
      group.recent_states = draw(2) == 0 ? 0 : draw(6);
    }
  }
  constexpr const char* kEvictions[] = {"lru", "reuse", "adaptive"};
  KvCacheOptions options = Options(std::move(groups), kEvictions[draw(3)], 1000);
  options.max_step_tokens = 1 + draw(40);
  options.max_steps_in_flight = 1 + draw(3);
  // Room for one to four long requests.
  const int32_t one = KvCacheManager(options).NumBlocks(100, {.media_tokens = 9});
  options.max_pinned_blocks = draw(one / 2 + 1);
  options.num_blocks = 2 + options.max_pinned_blocks + one + draw(static_cast<uint32_t>(3 * one));
  return options;
}

std::string Describe(const KvCacheOptions& options) {
  std::string text = std::to_string(options.num_blocks) + " blocks, " + options.eviction;
  for (const KvGroupOptions& group : options.groups) {
    text += ", " + group.kind + " of " + std::to_string(group.block_size) + " tokens and " +
            std::to_string(group.pages_per_block) + " pages";
  }
  return text;
}

}  // namespace pagemill::kv_cache
