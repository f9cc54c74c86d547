// Random operations on a KvCacheManager, over many layouts of groups, beside a store of pages that
// only the requests write. Each step reads what its layers would read, through the block tables of
// a runner, and compares it with what the request itself must have computed.
#include <algorithm>
#include <deque>
#include <list>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "cc/kv_cache/kv_cache_manager.h"
#include "gtest/gtest.h"

namespace pagemill::kv_cache {
namespace {

constexpr int32_t kGrain = 4;
constexpr int32_t kMaxStepTokens = 20;
constexpr int32_t kMaxSteps = 2;

uint64_t Mix(uint64_t a, uint64_t b) {
  a = (a ^ (b + 0x9e3779b97f4a7c15u)) * 0xbf58476d1ce4e5b9u;
  return a ^ (a >> 29);
}

struct Step {
  int32_t begin, end;
};

struct Running {
  step::Request request;
  std::vector<int32_t> output;
  std::vector<uint64_t> prints;  // prints[n]: of all that determines the first n tokens
  RequestBlocks blocks;
  std::vector<std::vector<BlockId>> tables;  // as the runner has them
  std::deque<Step> in_flight;
  int32_t planned = 0, computed = 0;

  step::TokenSequence tokens() const { return {request.prompt_token_ids, output}; }
  int32_t size() const { return tokens().size(); }
};

class Harness {
 public:
  Harness(const KvCacheOptions& options, uint32_t seed)
      : options_(options), cache_(options), random_(seed) {
    for (const KvGroupOptions& group : options.groups) {
      const int32_t tokens = group.block_size == 0 ? kGrain : group.block_size;
      block_tokens_.push_back(tokens);
      pages_.emplace_back(static_cast<size_t>(options.num_blocks), std::vector<uint64_t>());
      for (auto& page : pages_.back()) page.resize(static_cast<size_t>(tokens));
    }
  }

  void Run(int num_operations) {
    for (int i = 0; i < num_operations && !testing::Test::HasFailure(); ++i) {
      SCOPED_TRACE("operation " + std::to_string(i));
      RunOne();
      Check();
    }
    while (!running_.empty()) Remove(running_.begin());
    for (const auto& ids : holds_) cache_.Unhold(ids);
    for (PinId pin : pins_) cache_.Unpin(pin);
    EXPECT_EQ(cache_.num_free_blocks(), cache_.num_usable_blocks());
    const Status status = cache_.CheckIntegrity({});
    EXPECT_TRUE(status.ok()) << status.ToString();
  }

  int64_t num_hit_tokens() const { return num_hit_tokens_; }
  int64_t num_loads() const { return num_loads_; }

 private:
  using Iterator = std::list<Running>::iterator;

  uint32_t Draw(uint32_t below) { return static_cast<uint32_t>(random_()) % below; }
  Iterator Pick() {
    return std::next(running_.begin(), Draw(static_cast<uint32_t>(running_.size())));
  }

  void RunOne() {
    const uint32_t dice = Draw(100);
    if (dice < 20 || running_.empty()) {
      if (running_.size() < 5) Add();
    } else if (dice < 60) {
      Plan(Pick());
    } else if (dice < 90) {
      Complete(Pick());
    } else if (dice < 92) {
      Remove(Pick());
    } else if (dice < 94) {
      Truncate(Pick());
    } else if (dice < 96) {
      HoldOrUnhold();
    } else if (dice < 99) {
      PinOrUnpin();
    } else if (Draw(4) == 0) {
      cache_.ForgetContent();
      pins_.clear();
      ++version_;
    }
  }

  // Prompts from a tree with few branches, so that prefixes are shared.
  void Add() {
    Running made;
    const auto size = static_cast<int32_t>(8 + Draw(90));
    const int32_t prompt = 1 + static_cast<int32_t>(Draw(static_cast<uint32_t>(size)));
    const uint32_t branch = Draw(3), fork = 4 * Draw(12);
    made.request.adapter = step::AdapterId(static_cast<int32_t>(Draw(8) == 0));
    if (Draw(3) == 0) made.request.media = {{"image", 0, static_cast<int32_t>(Draw(9)) + 1}};
    made.prints = {Mix(
        Mix(version_, static_cast<uint64_t>(made.request.adapter.value())),
        made.request.media.empty() ? 0 : static_cast<uint64_t>(made.request.media[0].num_tokens))};
    if (!made.request.media.empty()) {
      made.request.media[0].content_id += std::to_string(made.request.media[0].num_tokens);
    }
    for (int32_t i = 0; i < size; ++i) {
      const int32_t token = i < static_cast<int32_t>(fork) ? 1 : static_cast<int32_t>(branch) + 2;
      (i < prompt ? made.request.prompt_token_ids : made.output).push_back(token);
      made.prints.push_back(Mix(made.prints.back(), static_cast<uint64_t>(token)));
    }
    made.blocks = RequestBlocks(made.request);

    const PrefixMatch match = cache_.FindPrefix(made.request, made.tokens(), &made.blocks);
    ASSERT_LT(match.num_tokens, made.size());
    ASSERT_EQ(match.num_tokens % kGrain, 0);
    if (!cache_.CanAllocate(made.blocks, &match, made.size())) return;
    num_hit_tokens_ += match.num_tokens;
    made.planned = made.computed = match.num_tokens;
    const int32_t most = made.size() / cache_.prefix_grain_tokens() * cache_.prefix_grain_tokens();
    bool loads = Draw(4) == 0 && most > match.num_tokens;
    for (size_t g = 0; g < options_.groups.size(); ++g) loads = loads && Loads(g);
    if (loads) {
      running_.push_back(std::move(made));
      Load(&running_.back(), match, most);
      return;
    }
    running_.push_back(std::move(made));
    PlanStep(&running_.back(), &match);
  }

  void Load(Running* request, const PrefixMatch& match, int32_t num_tokens) {
    ++num_loads_;
    cache_.AllocateForLoad(num_tokens, &match, &request->blocks);
    cache_.Hashes(request->request, request->tokens(), num_tokens, &request->blocks);
    std::vector<BlockContent> contents;
    cache_.Contents(request->blocks, match.num_tokens, num_tokens, &contents);
    // The other medium has what this request would have computed.
    request->tables = request->blocks.groups();
    for (size_t g = 0; g < options_.groups.size(); ++g) {
      // Full blocks only.
      const Step step{match.num_tokens, num_tokens / block_tokens_[g] * block_tokens_[g]};
      if (step.begin >= step.end) continue;
      IsState(g) ? WriteState(*request, g, step) : WriteTokens(*request, g, step);
    }
    const int32_t steps = (num_tokens - match.num_tokens) / kGrain;
    const int32_t arrived =
        match.num_tokens + kGrain * static_cast<int32_t>(Draw(static_cast<uint32_t>(steps) + 1));
    if (contents.empty()) {
      Remove(std::prev(running_.end()));
      return;
    }
    cache_.Commit(request->request, request->tokens(), arrived, &request->blocks);
    if (!cache_.TruncateComputed(arrived, &request->blocks)) {
      Remove(std::prev(running_.end()));
      return;
    }
    request->tables = request->blocks.groups();
    request->planned = request->computed = arrived;
  }

  bool IsState(size_t g) const { return options_.groups[g].kind == "state_space"; }
  bool Loads(size_t g) const {
    const KvGroupOptions& group = options_.groups[g];
    return group.kind != "cross" && group.kind != "encoder_only" &&
           !(IsState(g) && group.checkpoints == StateCheckpoints::kNone);
  }

  void Plan(Iterator request) {
    if (request->planned == request->size() || request->in_flight.size() == kMaxSteps) return;
    PlanStep(&*request, nullptr);
  }

  void PlanStep(Running* request, const PrefixMatch* match) {
    const int32_t most = std::min(kMaxStepTokens, request->size() - request->planned);
    if (most == 0) return;
    const int32_t n =
        Draw(2) == 0 ? 1 : 1 + static_cast<int32_t>(Draw(static_cast<uint32_t>(most)));
    const int32_t end = request->planned + n;
    if (!cache_.CanAllocate(request->blocks, match, end)) {
      ASSERT_EQ(match, nullptr);
      Remove(std::find_if(running_.begin(), running_.end(),
                          [request](const Running& other) { return &other == request; }));
      return;
    }
    std::vector<std::vector<BlockId>> added;
    cache_.Allocate(end, match, &request->blocks, &added);
    if (request->tables.empty()) request->tables.resize(options_.groups.size());
    for (size_t g = 0; g < added.size(); ++g) {
      request->tables[g].insert(request->tables[g].end(), added[g].begin(), added[g].end());
    }
    request->in_flight.push_back({request->planned, end});
    for (size_t g = 0; g < options_.groups.size(); ++g)
      Execute(*request, g, {request->planned, end});
    request->planned = end;
  }

  void Execute(const Running& request, size_t g, Step step) {
    const KvGroupOptions& group = options_.groups[g];
    if (IsState(g)) {
      ReadState(request, g, step.begin);
      WriteState(request, g, step);
    } else if (group.kind == "cross") {
      const int32_t media = request.request.media.empty() ? 0 : request.request.media[0].num_tokens;
      const uint64_t print = Mix(request.prints[0], 77);
      for (int32_t i = 0; i < media; ++i) {
        if (step.begin == 0) *At(request, g, i) = print;
        ASSERT_EQ(*At(request, g, i), print);
      }
    } else if (group.kind != "encoder_only") {
      int32_t first = 0;
      if (group.kind == "sliding_window") first = std::max(0, step.begin - group.window_tokens + 1);
      if (group.kind == "chunked_local")
        first = step.begin / group.window_tokens * group.window_tokens;
      for (int32_t i = first; i < step.begin; ++i) {
        ASSERT_EQ(*At(request, g, i), request.prints[static_cast<size_t>(i) + 1])
            << group.kind << ", token " << i << " of step from " << step.begin;
      }
      WriteTokens(request, g, step);
    }
  }

  // What the group's page has for the token, in each of the pages of its block.
  uint64_t* At(const Running& request, size_t g, int32_t token) {
    const int32_t pages = options_.groups[g].pages_per_block;
    const auto entry = static_cast<size_t>(token / block_tokens_[g] * pages + token % pages);
    const BlockId id = request.tables[g].at(entry);
    EXPECT_NE(id, kNullBlock);
    return &pages_[g][static_cast<size_t>(id.value())]
                  [static_cast<size_t>(token % block_tokens_[g])];
  }

  void WriteTokens(const Running& request, size_t g, Step step) {
    const int32_t pages = options_.groups[g].pages_per_block;
    for (int32_t i = step.begin; i < step.end; ++i) {
      const auto entry = static_cast<size_t>(i / block_tokens_[g] * pages);
      if (request.tables[g].at(entry) == kNullBlock) continue;  // of a load
      Wipe(request.tables[g][entry], g);
      *At(request, g, i) = request.prints[static_cast<size_t>(i) + 1];
    }
  }

  // A page has the content of one group at a time.
  void Wipe(BlockId id, size_t g) {
    for (size_t other = 0; other < pages_.size(); ++other) {
      if (other == g) continue;
      auto& page = pages_[other][static_cast<size_t>(id.value())];
      std::fill(page.begin(), page.end(), 0);
    }
  }

  uint64_t* StateAt(const Running& request, size_t g, int32_t position) {
    const int32_t last = options_.groups[g].pages_per_block - 1;
    const auto entry = static_cast<size_t>(position * (last + 1) + last);
    const BlockId id = request.tables[g].at(entry);
    if (id == kNullBlock) return nullptr;
    return &pages_[g][static_cast<size_t>(id.value())][0];
  }

  void ReadState(const Running& request, size_t g, int32_t begin) {
    if (begin == 0) return;
    const bool one = options_.groups[g].checkpoints == StateCheckpoints::kNone;
    const uint64_t* state = StateAt(request, g, one ? 0 : (begin - 1) / block_tokens_[g]);
    ASSERT_NE(state, nullptr) << "before token " << begin;
    ASSERT_EQ(*state, request.prints[static_cast<size_t>(begin)]) << "before token " << begin;
  }

  void WriteState(const Running& request, size_t g, Step step) {
    const int32_t size = block_tokens_[g];
    const bool one = options_.groups[g].checkpoints == StateCheckpoints::kNone;
    const int32_t last = one ? 0 : (step.end - 1) / size;
    for (int32_t i = one ? 0 : step.begin / size; i <= last; ++i) {
      uint64_t* state = StateAt(request, g, i);
      const int32_t tokens = i == last ? step.end : (i + 1) * size;
      if (state == nullptr) {
        EXPECT_TRUE(i != last);
        continue;
      }
      const int32_t pages = options_.groups[g].pages_per_block;
      Wipe(request.tables[g][static_cast<size_t>((i + 1) * pages - 1)], g);
      *state = request.prints[static_cast<size_t>(tokens)];
    }
  }

  void Complete(Iterator request) {
    if (request->in_flight.empty()) {
      if (request->computed == request->size()) Remove(request);
      return;
    }
    request->computed = request->in_flight.front().end;
    request->in_flight.pop_front();
    cache_.Commit(request->request, request->tokens(), request->computed, &request->blocks);
  }

  void Truncate(Iterator request) {
    if (!request->in_flight.empty() || request->computed == 0) return;
    const int32_t n =
        static_cast<int32_t>(Draw(static_cast<uint32_t>(request->computed))) / kGrain * kGrain;
    if (!cache_.TruncateComputed(n, &request->blocks)) {
      Remove(request);
      return;
    }
    // The states of a kind without checkpoints cannot be rewound; nor can they be asked to.
    request->tables = request->blocks.groups();
    request->planned = request->computed = n;
  }

  void Remove(Iterator request) {
    cache_.Free(&request->blocks);
    running_.erase(request);
  }

  void HoldOrUnhold() {
    if (holds_.size() >= 2) {
      cache_.Unhold(holds_.front());
      holds_.pop_front();
    } else if (!running_.empty()) {
      const Iterator request = Pick();
      std::vector<BlockContent> contents;
      cache_.Hashes(request->request, request->tokens(), request->computed, &request->blocks);
      cache_.Contents(request->blocks, 0, request->computed / kGrain * kGrain, &contents);
      holds_.emplace_back();
      for (const BlockContent& content : contents) holds_.back().push_back(content.block);
      cache_.Hold(holds_.back());
    }
  }

  void PinOrUnpin() {
    if (pins_.size() >= 2) {
      EXPECT_TRUE(cache_.Unpin(pins_.front()));
      pins_.pop_front();
    } else if (!running_.empty()) {
      const StatusOr<PinId> pin = cache_.Pin(Pick()->blocks.hashes());
      if (pin.ok()) pins_.push_back(*pin);
    }
  }

  void Check() {
    std::vector<const RequestBlocks*> holders;
    for (const Running& request : running_) {
      holders.push_back(&request.blocks);
      CheckHeld(request);
    }
    const Status status = cache_.CheckIntegrity(holders);
    ASSERT_TRUE(status.ok()) << status.ToString();
    CheckCommonPrefix();
  }

  void CheckHeld(const Running& request) {
    int32_t held = 0;
    for (const auto& table : request.blocks.groups()) {
      held += static_cast<int32_t>(
          table.size() - static_cast<size_t>(std::count(table.begin(), table.end(), kNullBlock)));
    }
    RequestShape shape;
    shape.prompt_tokens = static_cast<int32_t>(request.request.prompt_token_ids.size());
    for (const step::MediaItem& item : request.request.media) shape.media_tokens = item.num_tokens;
    ASSERT_LE(held, cache_.NumBlocks(request.planned, shape));
  }

  void CheckCommonPrefix() {
    if (running_.empty()) return;
    std::vector<int32_t> counts;
    cache_.NumCommonPrefixBlocks(running_.front().blocks, &counts);
    ASSERT_EQ(counts.size(), options_.groups.size());
    for (size_t g = 0; g < counts.size(); ++g) {
      if (options_.groups[g].kind != "full" && options_.groups[g].kind != "mla") {
        ASSERT_EQ(counts[g], 0);
        continue;
      }
      const int32_t pages = options_.groups[g].pages_per_block;
      const auto& first = running_.front().blocks.groups();
      int32_t common = running_.front().computed / block_tokens_[g];
      for (const Running& other : running_) {
        const auto& table = other.blocks.groups();
        if (table.empty()) continue;
        const auto end =
            std::mismatch(first[g].begin(), first[g].end(), table[g].begin(), table[g].end());
        common = std::min(common, static_cast<int32_t>(end.first - first[g].begin()) / pages);
      }
      ASSERT_EQ(counts[g], common);
    }
  }

  const KvCacheOptions options_;
  KvCacheManager cache_;
  std::mt19937 random_;
  std::vector<int32_t> block_tokens_;                      // per group
  std::vector<std::vector<std::vector<uint64_t>>> pages_;  // [group][page][token of the block]
  std::list<Running> running_;
  std::deque<std::vector<BlockId>> holds_;
  std::deque<PinId> pins_;
  uint64_t version_ = 0;  // of the weights, so to say: content of another one must not be found
  int64_t num_hit_tokens_ = 0, num_loads_ = 0;
};

std::vector<std::vector<KvGroupOptions>> Layouts() {
  const KvGroupOptions state{.kind = "state_space", .pages_per_block = 2};
  const KvGroupOptions large_state{.kind = "state_space", .block_size = 8};
  const KvGroupOptions every{.kind = "state_space",
                             .checkpoints = StateCheckpoints::kEveryBoundary};
  const KvGroupOptions none{.kind = "state_space", .checkpoints = StateCheckpoints::kNone};
  const KvGroupOptions window{.kind = "sliding_window", .window_tokens = 10};
  const KvGroupOptions wide{.kind = "sliding_window", .block_size = 12, .window_tokens = 30};
  const KvGroupOptions chunk{.kind = "chunked_local", .window_tokens = 24};
  const KvGroupOptions mla{.kind = "mla", .block_size = 8, .pages_per_block = 3};
  return {
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
      {{"full"}, {.kind = "cross"}},
      {{.kind = "encoder_only"}},
  };
}

TEST(KvCacheManager, RandomOperationsAgreeWithAPageStore) {
  int64_t num_hit_tokens = 0, num_loads = 0;
  uint32_t seed = 1;
  for (const std::vector<KvGroupOptions>& groups : Layouts()) {
    for (const char* eviction : {"lru", "reuse"}) {
      for (int32_t num_blocks : {40, 90}) {
        KvCacheOptions options;
        options.num_blocks = num_blocks;
        options.block_size = kGrain;
        options.groups = groups;
        options.eviction = eviction;
        options.max_pinned_blocks = 12;
        options.max_events = 5;
        options.max_step_tokens = kMaxStepTokens;
        options.max_steps_in_flight = kMaxSteps;
        SCOPED_TRACE(groups[0].kind + " and " + std::to_string(groups.size() - 1) + " others, " +
                     eviction + ", " + std::to_string(num_blocks) + " blocks");
        Harness harness(options, ++seed);
        harness.Run(3000);
        if (testing::Test::HasFailure()) return;
        num_hit_tokens += harness.num_hit_tokens();
        num_loads += harness.num_loads();
      }
    }
  }
  // The operations did reach what they are to test.
  EXPECT_GT(num_hit_tokens, 50000);
  EXPECT_GT(num_loads, 1000);
}

}  // namespace
}  // namespace pagemill::kv_cache
