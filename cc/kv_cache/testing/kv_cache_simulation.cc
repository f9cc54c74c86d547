#include "cc/kv_cache/testing/kv_cache_simulation.h"

#include <algorithm>
#include <optional>
#include <string>

#include "cc/kv_cache/testing/cache_layouts.h"
#include "gtest/gtest.h"

namespace pagemill::kv_cache {

KvCacheSimulation::KvCacheSimulation(const KvCacheOptions& options, uint32_t seed, Counts* counts)
    : options_(options), cache_(options), pages_(options), random_(seed), counts_(counts) {
  for (size_t g = 0; g < options.groups.size(); ++g) {
    const std::string& kind = options.groups[g].kind;
    can_load_ = can_load_ && kind != "cross" && kind != "encoder_only" && !pages_.is_one_state(g);
  }
}

void KvCacheSimulation::Run(int num_operations) {
  for (int i = 0; i < num_operations && !testing::Test::HasFailure(); ++i) {
    SCOPED_TRACE("operation " + std::to_string(i));
    RunOne();
    Check();
  }
  while (!running_.empty()) Remove(running_.begin());
  for (const std::vector<BlockId>& ids : holds_) PAGEMILL_CHECK(cache_.Unhold(ids).ok());
  for (const Pinned& pin : pins_) EXPECT_TRUE(cache_.Unpin(pin.id));
  EXPECT_EQ(cache_.num_free_blocks(), cache_.num_usable_blocks());
  EXPECT_EQ(cache_.num_pinned_blocks(), 0);
  EXPECT_TRUE(cache_.Reset());
  EXPECT_EQ(cache_.num_cached_blocks(), 0);
  const Status status = cache_.CheckIntegrity({});
  EXPECT_TRUE(status.ok()) << status.ToString();
  counts_->evictions += cache_.num_evictions();
}

void KvCacheSimulation::RunOne() {
  const uint32_t dice = Draw(100);
  if (dice < 20 || running_.empty()) {
    if (running_.size() < 5) Add();
  } else if (dice < 60) {
    Plan(Pick(), nullptr);
  } else if (dice < 90) {
    Complete(Pick());
  } else if (dice < 92) {
    Remove(Pick());
  } else if (dice < 94) {
    Rewind(Pick());
  } else if (dice < 96) {
    HoldOrUnhold();
  } else if (dice < 99) {
    PinOrUnpin();
  } else if (Draw(4) == 0) {
    Forget();
  }
}

// Tokens from a tree with few branches, so that prefixes are shared.
FakeRequest KvCacheSimulation::MakeRequest() {
  FakeRequest made;
  const auto size = static_cast<int32_t>(8 + Draw(90));
  const int32_t prompt = 1 + static_cast<int32_t>(Draw(static_cast<uint32_t>(size)));
  const auto branch = static_cast<int32_t>(2 + Draw(3)), fork = static_cast<int32_t>(4 * Draw(12));
  uint64_t root = version_;
  if (Draw(8) == 0) {
    made.request.adapter = step::AdapterId(1);
    root = Mix(root, 1);
  }
  if (Draw(8) == 0) {
    made.request.cache_salt = "tenant";
    root = Mix(root, 2);
  }
  if (Draw(3) == 0) {
    const auto num_tokens = static_cast<int32_t>(Draw(9)) + 1;
    made.request.media = {{"image" + std::to_string(num_tokens), 0, num_tokens}};
    root = Mix(root, static_cast<uint64_t>(2 + num_tokens));
  }
  made.prints = {root};
  for (int32_t i = 0; i < size; ++i) {
    const int32_t token = i < fork ? 1 : branch;
    if (i < prompt) {
      made.request.prompt_token_ids.push_back(token);
    } else {
      made.output.push_back(token);
    }
    made.prints.push_back(Mix(made.prints.back(), static_cast<uint64_t>(token)));
  }
  made.blocks = RequestBlocks(made.request);
  return made;
}

void KvCacheSimulation::Add() {
  FakeRequest made = MakeRequest();
  const PrefixMatch match = cache_.FindPrefix(made.request, made.tokens(), &made.blocks);
  CheckMatch(made, match);
  if (!cache_.CanAllocate(made.blocks, &match, made.size())) return;
  counts_->hit_tokens += match.num_tokens;
  made.planned = made.computed = match.num_tokens;
  made.tables.resize(options_.groups.size());
  const int32_t grain = cache_.prefix_grain_tokens(), most = made.size() / grain * grain;
  running_.push_back(std::move(made));
  if (can_load_ && most > match.num_tokens && Draw(4) == 0) {
    Load(std::prev(running_.end()), match, most);
  } else {
    Plan(std::prev(running_.end()), &match);
  }
}

// The other medium has what this request would have computed, but not all of it arrives.
void KvCacheSimulation::Load(Iterator request, const PrefixMatch& match, int32_t num_tokens) {
  ++counts_->loads;
  PAGEMILL_CHECK(cache_.AllocateForLoad(num_tokens, &match, &request->blocks).ok());
  cache_.Hashes(request->request, request->tokens(), num_tokens, &request->blocks);
  std::vector<BlockContent> contents;
  cache_.Contents(request->blocks, match.num_tokens, num_tokens, &contents);
  for (const BlockContent& content : contents) EXPECT_NE(content.block, kNullBlock);
  request->tables = request->blocks.groups();
  pages_.Load(*request, {match.num_tokens, num_tokens});
  const int32_t size = options_.block_size;
  const auto num_blocks = static_cast<uint32_t>((num_tokens - match.num_tokens) / size);
  const int32_t arrived = match.num_tokens + size * static_cast<int32_t>(Draw(num_blocks + 1));
  cache_.Commit(request->request, request->tokens(), arrived, &request->blocks);
  if (!cache_.TruncateComputed(arrived, &request->blocks)) {
    Remove(request);
    return;
  }
  request->tables = request->blocks.groups();
  request->tables.resize(options_.groups.size());
  request->planned = request->computed = arrived;
}

void KvCacheSimulation::Plan(Iterator request, const PrefixMatch* match) {
  const int32_t left = request->size() - request->planned;
  const auto num_in_flight = static_cast<int32_t>(request->in_flight.size());
  if (left == 0 || num_in_flight == options_.max_steps_in_flight) return;
  const auto most = static_cast<uint32_t>(std::min(options_.max_step_tokens, left));
  const int32_t n = Draw(2) == 0 ? 1 : 1 + static_cast<int32_t>(Draw(most));
  const TokenRange step{request->planned, request->planned + n};
  if (!cache_.CanAllocate(request->blocks, match, step.end)) {
    ASSERT_EQ(match, nullptr) << "there was room for all of the request";
    Remove(request);
    return;
  }
  std::vector<std::vector<BlockId>> added;
  PAGEMILL_CHECK(cache_.Allocate(step.end, match, &request->blocks, &added).ok());
  for (size_t g = 0; g < added.size(); ++g) {
    request->tables[g].insert(request->tables[g].end(), added[g].begin(), added[g].end());
  }
  request->in_flight.push_back(step);
  request->planned = step.end;
  request->covered = std::max(request->covered, step.end);
  pages_.Run(*request, step);
}

void KvCacheSimulation::Complete(Iterator request) {
  if (request->in_flight.empty()) {
    if (request->computed == request->size()) Remove(request);
    return;
  }
  const TokenRange step = request->in_flight.front();
  request->computed = step.end;
  request->in_flight.pop_front();
  if (request->in_flight.empty() && Draw(3) == 0) {
    // The step ran drafts, of which some are rejected.
    const int32_t most = std::min({step.end - step.begin - 1, options_.MaxRejectedTokens(), 4});
    request->computed -= static_cast<int32_t>(Draw(static_cast<uint32_t>(most) + 1));
    request->planned = request->computed;
    counts_->rejected_tokens += step.end - request->computed;
  }
  cache_.Commit(request->request, request->tokens(), request->computed, &request->blocks);
}

void KvCacheSimulation::Rewind(Iterator request) {
  if (!request->in_flight.empty() || request->computed == 0) return;
  const auto drawn = static_cast<int32_t>(Draw(static_cast<uint32_t>(request->computed)));
  const int32_t num_tokens = drawn / options_.block_size * options_.block_size;
  if (!cache_.TruncateComputed(num_tokens, &request->blocks)) {
    Remove(request);
    return;
  }
  ++counts_->rewinds;
  request->tables = request->blocks.groups();
  request->tables.resize(options_.groups.size());
  request->planned = request->computed = request->covered = num_tokens;
}

void KvCacheSimulation::Remove(Iterator request) {
  cache_.Free(&request->blocks);
  running_.erase(request);
}

void KvCacheSimulation::HoldOrUnhold() {
  if (holds_.size() >= 2) {
    PAGEMILL_CHECK(cache_.Unhold(holds_.front()).ok());
    holds_.pop_front();
    return;
  }
  const Iterator request = Pick();
  const int32_t end = request->computed / options_.block_size * options_.block_size;
  std::vector<BlockContent> contents;
  cache_.Hashes(request->request, request->tokens(), end, &request->blocks);
  cache_.Contents(request->blocks, 0, end, &contents);
  holds_.emplace_back();
  for (const BlockContent& content : contents) holds_.back().push_back(content.block);
  PAGEMILL_CHECK(cache_.Hold(holds_.back()).ok());
}

void KvCacheSimulation::PinOrUnpin() {
  if (pins_.size() >= 2) {
    EXPECT_TRUE(cache_.Unpin(pins_.front().id));
    EXPECT_FALSE(cache_.Unpin(pins_.front().id));
    pins_.pop_front();
    return;
  }
  const std::span<const BlockHash> hashes = Pick()->blocks.hashes();
  Pinned pinned;
  int32_t num_pages = 0;
  for (const BlockHash& hash : hashes) {
    for (size_t g = 0; g < options_.groups.size(); ++g) {
      const GroupId group(static_cast<uint16_t>(g));
      if (!listener_.Has(hash, group)) continue;
      pinned.contents.emplace_back(group, hash);
      num_pages += options_.groups[g].pages_per_block;
    }
  }
  const int32_t room = options_.max_pinned_blocks - cache_.num_pinned_blocks();
  const StatusOr<PinId> pin = cache_.Pin(hashes);
  if (num_pages == 0) {
    EXPECT_EQ(pin.status().code(), StatusCode::kNotFound);
  } else if (num_pages > room) {
    EXPECT_EQ(pin.status().code(), StatusCode::kResourceExhausted);
    ++counts_->refused_pins;
  } else {
    ASSERT_TRUE(pin.ok()) << pin.status().ToString();
    ++counts_->pins;
    pinned.id = *pin;
    pins_.push_back(std::move(pinned));
  }
}

void KvCacheSimulation::Forget() {
  if (Draw(2) == 0) {
    const bool is_held = std::any_of(running_.begin(), running_.end(),
                                     [](const auto& other) { return !other.blocks.empty(); });
    EXPECT_EQ(cache_.Reset(), !is_held);
    if (is_held) return;
  } else {
    cache_.ForgetContent();
  }
  pins_.clear();
  ++version_;
}

void KvCacheSimulation::Check() {
  std::vector<const RequestBlocks*> holders;
  for (const FakeRequest& request : running_) {
    holders.push_back(&request.blocks);
    CheckHeld(request);
  }
  const Status status = cache_.CheckIntegrity(holders);
  ASSERT_TRUE(status.ok()) << status.ToString();
  CheckCommonPrefix();
  // One listener reads the events of each operation, the other one reads seldom.
  ASSERT_TRUE(listener_.Follow(*cache_.events()));
  ASSERT_EQ(listener_.size(), cache_.num_cached_blocks());
  if (Draw(150) == 0) {
    counts_->lost_events += !slow_listener_.Follow(*cache_.events());
    ASSERT_TRUE(!slow_listener_.in_step() || slow_listener_.size() == cache_.num_cached_blocks());
  }
  CheckPins();
}

// What full attention finds is what there is, no more and no less.
void KvCacheSimulation::CheckMatch(const FakeRequest& request, const PrefixMatch& match) {
  ASSERT_LT(match.num_tokens, request.size());
  ASSERT_EQ(match.num_tokens % cache_.prefix_grain_tokens(), 0);
  const std::span<const BlockHash> hashes = request.blocks.hashes().first(
      std::min<size_t>(request.blocks.hashes().size(), (request.size() - 1) / options_.block_size));
  int32_t most = request.size() - 1;
  bool is_exact = true;
  for (size_t g = 0; g < options_.groups.size(); ++g) {
    const std::string& kind = options_.groups[g].kind;
    if (kind != "full" && kind != "mla") {
      is_exact = false;
      continue;
    }
    const int32_t tokens = pages_.block_tokens(g);
    const GroupId group(static_cast<uint16_t>(g));
    most =
        std::min(most, tokens * listener_.NumLeading(hashes, tokens / options_.block_size, group));
  }
  most = most / cache_.prefix_grain_tokens() * cache_.prefix_grain_tokens();
  ASSERT_LE(match.num_tokens, most);
  ASSERT_TRUE(!is_exact || match.num_tokens == most) << match.num_tokens << " of " << most;
}

void KvCacheSimulation::CheckHeld(const FakeRequest& request) {
  int32_t held = 0;
  for (const std::vector<BlockId>& table : request.blocks.groups()) {
    const auto num_null = std::count(table.begin(), table.end(), kNullBlock);
    held += static_cast<int32_t>(table.size()) - static_cast<int32_t>(num_null);
  }
  RequestShape shape;
  shape.prompt_tokens = static_cast<int32_t>(request.request.prompt_token_ids.size());
  shape.media_tokens = request.media_tokens();
  ASSERT_LE(held, cache_.NumBlocks(std::max(request.planned, request.covered), shape));
}

void KvCacheSimulation::CheckCommonPrefix() {
  if (running_.empty()) return;
  std::vector<int32_t> counts;
  cache_.NumCommonPrefixBlocks(running_.front().blocks, &counts);
  ASSERT_EQ(counts.size(), options_.groups.size());
  for (size_t g = 0; g < counts.size(); ++g) {
    const std::string& kind = options_.groups[g].kind;
    int32_t common = 0;
    if (kind == "full" || kind == "mla") {
      const std::vector<BlockId>& first = running_.front().tables[g];
      common = running_.front().computed / pages_.block_tokens(g);
      for (const FakeRequest& other : running_) {
        if (other.blocks.empty()) continue;
        const std::vector<BlockId>& table = other.tables[g];
        const auto end = std::mismatch(first.begin(), first.end(), table.begin(), table.end());
        const auto same = static_cast<int32_t>(end.first - first.begin());
        common = std::min(common, same / options_.groups[g].pages_per_block);
      }
      if (running_.size() > 1) counts_->common_blocks += common;
    }
    ASSERT_EQ(counts[g], common);
  }
}

void KvCacheSimulation::CheckPins() {
  for (const Pinned& pin : pins_) {
    for (const auto& [group, hash] : pin.contents) ASSERT_TRUE(listener_.Has(hash, group));
  }
}

void Simulate(const KvCacheOptions& options, uint32_t seed, int num_operations,
              KvCacheSimulation::Counts* counts) {
  SCOPED_TRACE(Describe(options) + ", seed " + std::to_string(seed));
  ASSERT_TRUE(options.Validate().ok());
  KvCacheSimulation(options, seed, counts).Run(num_operations);
}

}  // namespace pagemill::kv_cache
